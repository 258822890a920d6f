// What happened, as marks on the charts: changes by people, and workers that died.

import type { AuditEntry, LogEntry } from '../api/schema';
import { precise } from '../lib/format';
import { shortKey } from '../lib/telling';

export interface Mark {
  id: string;
  steps: number | null; // where it is known
  time_s: number;
  text: string;
  tone: 'change' | 'bad' | 'calm';
}

export const MOST_MARKS = 60; // the newest

/** When the learner took up what was set. */
export interface Change {
  time_s: number;
  steps: number;
  values: Record<string, number>;
}

export function changeOf(entry: LogEntry): Change | null {
  if (entry.kind !== 'hyperparameters_changed') return null;
  const { env_steps, values } = entry.data as { env_steps: number; values: Record<string, number> };
  return { time_s: entry.time_s, steps: env_steps, values };
}

export function markOf(entry: LogEntry): Mark | null {
  const data = entry.data;
  const base = { id: `e${entry.seq}`, time_s: entry.time_s, steps: numberOf(data.env_steps) };
  switch (entry.kind) {
    case 'training_held':
      return { ...base, text: data.held ? 'paused' : 'resumed', tone: 'calm' };
    case 'worker_failed':
      return { ...base, text: `${data.kind} ${data.index} failed`, tone: 'bad' };
    case 'worker_exited': {
      if (data.expected || data.code === 0) return null;
      return { ...base, text: `${data.kind} ${data.index} died`, tone: 'bad' };
    }
    case 'run_ended': // a stop is the mark of who asked for it: a server that ends stops its runs too
      return data.status === 'stopped' ? null : { ...base, text: String(data.status), tone: data.status === 'failed' ? 'bad' : 'calm' };
    default:
      return null;
  }
}

/** The mark of a command that was accepted, where the learner took it up if it said so. */
export function markOfCommand(entry: AuditEntry, changes: readonly Change[]): Mark | null {
  if (entry.outcome !== 'accepted') return null;
  const base = { id: `c${entry.seq}`, time_s: entry.time_s, steps: null, tone: 'change' } as const;
  if (entry.kind === 'set_hyperparameters') {
    const values = Object.entries(entry.data.values as Record<string, number>);
    const taken = changes.find(
      (change) => change.time_s >= entry.time_s && values.every(([key, value]) => change.values[key] === value),
    );
    const text = values.map(([key, value]) => `${shortKey(key)} ${precise(value)}`).join(', ');
    return { ...base, text, steps: taken?.steps ?? null };
  }
  if (entry.kind === 'scale_actors') return { ...base, text: `actors ${entry.data.count}` };
  if (entry.kind === 'scale_learner') return { ...base, text: `learner ${entry.data.count}` };
  if (entry.kind === 'stop_run') return { ...base, text: 'stopped', tone: 'calm' };
  if (entry.kind === 'set_seat_map') return { ...base, text: 'new seat map' };
  return null;
}

function numberOf(found: unknown): number | null {
  return typeof found === 'number' ? found : null;
}
