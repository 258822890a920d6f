// Events and commands in a person's words. Everything here is text, and is only ever shown as text.

import type { AuditEntry, LogEntry } from '../api/schema';
import { plural, precise, whole } from './format';

type Data = Record<string, unknown>;

/** policies.red.algorithm.learning_rate -> red learning rate */
export function shortKey(key: string): string {
  return key.replace(/^policies\./, '').replace(/\.?algorithm\./, ' ').replaceAll('_', ' ').trim();
}

export function tellEvent(entry: LogEntry): string {
  const data = entry.data;
  switch (entry.kind) {
    case 'command_accepted':
      return `command ${short(data.command)} accepted`;
    case 'command_rejected':
      return `command ${short(data.command)} rejected: ${data.why}`;
    case 'run_owned':
      return `run by the ${data.by} (process ${data.pid})`;
    case 'worker_starting':
      return `${worker(data)} is being started`;
    case 'worker_waiting':
      return `${worker(data)} waits for ${data.why}`;
    case 'worker_started':
      return `${worker(data)} started${data.host ? ` on ${data.host}` : ''} as process ${data.pid}`;
    case 'worker_failed':
      return `${worker(data)} failed: ${data.error}`;
    case 'worker_exited':
      return `${worker(data)} ended${ending(data)}`;
    case 'checkpoint_saved':
      return `checkpoint ${data.name} at ${whole(Number(data.env_steps))} steps`;
    case 'checkpoint_damaged':
      return `checkpoint ${data.name} is damaged: ${data.why}`;
    case 'hyperparameters_changed':
      return `${values(data.values)} from update ${whole(Number(data.update))} on`;
    case 'update_skipped':
      return `${data.why}: skipped, the weights stay as they were`;
    case 'training_held':
      return `${data.held ? 'paused' : 'went on'} at update ${whole(Number(data.update))}`;
    case 'job_started':
      return `job ${short(data.command)} began in process ${data.pid}`;
    case 'job_done':
      return data.error ? `job ${short(data.command)} failed: ${data.error}` : `job ${short(data.command)} is done`;
    case 'match_played': {
      const [a, b] = data.players as [string, string];
      return `${a} against ${b}: ${data.wins} won, ${data.draws} drawn, ${data.losses} lost`;
    }
    case 'run_ended':
      return `ended ${data.status}: ${data.reason}`;
    default:
      return entry.kind;
  }
}

export function tellCommand(entry: AuditEntry): string {
  const data = entry.data;
  switch (entry.kind) {
    case 'create_run':
      return 'create';
    case 'scale_actors':
      return `actors to ${data.count}`;
    case 'scale_learner':
      return Number(data.count) ? 'bring the learner back' : 'take the learner away';
    case 'set_hyperparameters':
      return `set ${values(data.values)}`;
    case 'set_seat_map':
      return `seat ${Object.entries(data.seats as Data).map(([seat, who]) => `${seat}: ${typeof who === 'string' ? who : 'a draw'}`).join(', ')}`;
    case 'evaluate':
      return `evaluate ${data.player} over ${plural(Number(data.episodes), 'episode')}`;
    case 'play_match':
      return `match ${data.a} against ${data.b}, ${plural(Number(data.games), 'game')}`;
    default:
      return entry.kind.replace(/_run$/, '').replaceAll('_', ' ');
  }
}

function values(found: unknown): string {
  return Object.entries(found as Record<string, number>)
    .map(([key, value]) => `${shortKey(key)} ${precise(value)}`)
    .join(', ');
}

function worker(data: Data): string {
  return data.kind === 'actor' ? `actor ${data.index}` : String(data.kind);
}

function ending(data: Data): string {
  if (data.reason) return `: ${data.reason}`; // it says more than the code that was made up for it
  const code = Number(data.code);
  if (code < 0) return ` by signal ${-code}`;
  return code ? ` with code ${code}` : '';
}

function short(id: unknown): string {
  return String(id).slice(0, 8);
}
