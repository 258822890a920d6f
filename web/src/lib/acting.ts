// Doing something to a run: one command, and what became of it in the person's words.

import { post } from '../api/client';
import type { Answer } from '../api/schema';

export type Plain = 'start' | 'pause' | 'resume' | 'stop' | 'save-checkpoint';

export const plainly: Record<Plain, (run: string, reason: string, dryRun?: boolean) => Promise<Answer>> = {
  start: (run, reason, dry) => post('/api/v1/runs/{run}/start', { reason }, at(run, dry)),
  pause: (run, reason, dry) => post('/api/v1/runs/{run}/pause', { reason }, at(run, dry)),
  resume: (run, reason, dry) => post('/api/v1/runs/{run}/resume', { reason }, at(run, dry)),
  stop: (run, reason, dry) => post('/api/v1/runs/{run}/stop', { reason }, at(run, dry)),
  'save-checkpoint': (run, reason, dry) => post('/api/v1/runs/{run}/save-checkpoint', { reason }, at(run, dry)),
};

export type Bound = 'steps' | 'minutes' | 'until_return';

/** Go on up to a bound, beyond one that the run has reached; steps and minutes count from its beginning. */
export function trainOn(run: string, bound: Bound, most: number, reason: string): Promise<Answer> {
  return post('/api/v1/runs/{run}/resume', { [bound]: most, reason }, at(run));
}

export function scaleActors(run: string, count: number, reason: string, dryRun = false): Promise<Answer> {
  return post('/api/v1/runs/{run}/scale-actors', { count, reason }, at(run, dryRun));
}

export function setHyperparameters(run: string, values: Record<string, number>, reason: string, dryRun = false): Promise<Answer> {
  return post('/api/v1/runs/{run}/set-hyperparameters', { values, reason }, at(run, dryRun));
}

export function label(run: string, labels: { name: string; tags: string[]; notes: string }): Promise<Answer> {
  return post('/api/v1/runs/{run}/label', { ...labels, reason: '' }, at(run));
}

/** Tags as a person types them. */
export function wordsOf(text: string): string[] {
  return text.split(/[\s,]+/).filter(Boolean);
}

/** What to show of an answer. */
export function tellAnswer(answer: Answer): string {
  if (answer.outcome === 'waiting') return `${answer.effect}; it is done as soon as the process that runs it is back`;
  return answer.why || answer.effect;
}

function at(run: string, dryRun = false): { run: string; query: { dry_run: boolean } } {
  return { run, query: { dry_run: dryRun } };
}
