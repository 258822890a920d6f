// A sweep's trials on axes: where a value stands, what is written beside it, how good a trial is.

import type { SearchedKey, SweepStage, SweepTrial } from '../api/schema';
import { precise } from './format';

export interface Tick {
  at: number; // from 0 to 1
  text: string;
}

const MOST_TICKS = 6;

/** From 0 to 1 on the axis of a key; null: the trial does not have it. */
export function placeOf(key: SearchedKey, trial: Pick<SweepTrial, 'values'>): number | null {
  const value = trial.values[key.key];
  if (value === undefined) return null;
  if (key.options.length) {
    const text = JSON.stringify(value);
    const at = key.options.findIndex((option) => JSON.stringify(option) === text);
    return at < 0 ? null : at / Math.max(1, key.options.length - 1);
  }
  return typeof value === 'number' ? share(key, value) : null;
}

/** What stands beside an axis: every option, or round numbers and both ends. */
export function ticksOf(key: SearchedKey): Tick[] {
  if (key.options.length) {
    return key.options.map((option, i) => ({ at: i / Math.max(1, key.options.length - 1), text: shown(option) }));
  }
  const [low, high] = [key.low ?? 0, key.high ?? 1];
  const inner = key.log ? powers(low, high) : [(low + high) / 2];
  const few = inner.length > MOST_TICKS ? inner.filter((_, i) => i % Math.ceil(inner.length / MOST_TICKS) === 0) : inner;
  const apart = few.filter((value) => share(key, value) > 0.08 && share(key, value) < 0.92);
  return [low, ...apart, high].map((value) => ({ at: share(key, value), text: shown(value) }));
}

/** How a trial stands among those that have a return: 0 the worst, 1 the best. By rank, so that one
 * outlier does not make all others alike. */
export function ranks(trials: readonly SweepTrial[]): Map<number, number> {
  const done = trials.filter((trial) => trial.value !== null).toSorted((a, b) => (a.value ?? 0) - (b.value ?? 0));
  return new Map(done.map((trial, place) => [trial.trial, done.length > 1 ? place / (done.length - 1) : 1]));
}

/** Keys with those first that matter most. */
export function byImportance(keys: readonly SearchedKey[], importance: Record<string, number>): SearchedKey[] {
  return keys.toSorted((a, b) => (importance[b.key] ?? 0) - (importance[a.key] ?? 0));
}

/** 3 > 0@4: member 3's line, taken over by member 0 in generation 4. */
export function lineage(stages: readonly SweepStage[]): string {
  const [first, ...rest] = stages;
  if (!first) return '';
  return [String(first.member), ...rest.filter((stage) => stage.parent).map((stage) => `${stage.member}@${stage.generation}`)].join(' > ');
}

/** Trial 3: return 120, learning_rate 0.001, … */
export function told(trial: SweepTrial): string {
  const result = trial.value === null ? trial.status : `return ${precise(trial.value)}`;
  const values = Object.entries(trial.values).map(([key, value]) => `${short(key)} ${shown(value)}`);
  return `Trial ${trial.trial}: ${[result, ...values].join(', ')}`;
}

export function shown(value: unknown): string {
  if (value == null) return '–';
  if (typeof value === 'number') return precise(value);
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** A key without the part that most keys begin with. */
export function short(key: string): string {
  return key.replace(/^(algorithm|network|actors|learner)\./, '');
}

/** So many letters at most. */
export function clipped(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

function share(key: SearchedKey, value: number): number {
  const [low, high] = [key.low ?? 0, key.high ?? 1];
  const at = key.log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  return Number.isFinite(at) ? Math.min(1, Math.max(0, at)) : 0;
}

function powers(low: number, high: number): number[] {
  const [first, last] = [Math.ceil(Math.log10(low)), Math.floor(Math.log10(high))];
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => 10 ** (first + i));
}
