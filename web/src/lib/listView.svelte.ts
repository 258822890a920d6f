// What the list of runs shows: which, in which order, grouped by what, with which columns.
//
// The address is the only place where it is kept, in the words of `GET /api/v1/runs`, so a link
// shows the same to whoever follows it.

import type { paths } from '../api/schema';
import { router } from './router.svelte';

export type Asked = NonNullable<paths['/api/v1/runs']['get']['parameters']['query']>;
export type Status = NonNullable<Asked['status']>;

export const ROWS = 50; // of a page
export const COLUMNS: Record<string, string> = {
  environment: 'Environment',
  status: 'State',
  env_steps: 'Steps',
  mean_return_100: 'Return',
  steps_per_s: 'Steps/s',
  lag_mean: 'Policy lag',
  actors: 'Actors',
  created_s: 'Created',
};
export const STATUSES: Status[] = ['running', 'queued', 'paused', 'interrupted', 'created', 'solved', 'finished', 'limited', 'stopped', 'failed'];
export const GROUPS: Record<string, string> = { environment: 'environment', algorithm: 'algorithm', status: 'state', tag: 'tag', group: 'group' };

const WORDS = ['run', 'environment', 'status']; // sorted from a
const KEYS = ['search', 'status', 'environment', 'tag', 'sort', 'order', 'group', 'columns', 'offset'] as const;
type Kept = Partial<Record<(typeof KEYS)[number], string>>;

class ListView {
  search = $derived(router.query.get('search') ?? '');
  status = $derived((router.query.get('status') ?? '') as Status);
  environment = $derived(router.query.get('environment') ?? '');
  tag = $derived(router.query.get('tag') ?? '');
  sort = $derived(router.query.get('sort') ?? 'created_s');
  order = $derived((router.query.get('order') ?? this.#orderOf(this.sort)) as 'asc' | 'desc');
  group = $derived(router.query.get('group') ?? '');
  columns = $derived(router.query.get('columns')?.split(',').filter(Boolean) ?? Object.keys(COLUMNS));
  keys = $derived(this.columns.filter((key) => !(key in COLUMNS))); // of configs
  offset = $derived(Math.max(0, Number(router.query.get('offset')) || 0));
  isFiltered = $derived(this.search + this.status + this.environment + this.tag !== '');

  asked = $derived<Asked>({
    search: this.search,
    status: this.status,
    environment: this.environment,
    tag: this.tag,
    sort: this.sort,
    order: this.order,
    group: this.group,
    columns: this.keys.join(),
    offset: this.offset,
  });

  /** Another view; but for another page it begins at the first. */
  change(kept: Kept): void {
    const query = new URLSearchParams(router.query);
    for (const [key, value] of Object.entries({ offset: '', ...kept })) {
      if (value) query.set(key, value);
      else query.delete(key);
    }
    const text = query.toString();
    router.replace(`/runs${text ? `?${text}` : ''}`);
  }

  sortBy(key: string): void {
    const isAgain = this.sort === key;
    this.change({ sort: key, order: isAgain ? (this.order === 'asc' ? 'desc' : 'asc') : this.#orderOf(key) });
  }

  /** Standard columns stay in their order, config keys come last. */
  showColumn(key: string, isShown: boolean): void {
    const shown = this.columns.filter((other) => other !== key).concat(isShown ? key : []);
    const standard = Object.keys(COLUMNS).filter((other) => shown.includes(other));
    const all = [...standard, ...shown.filter((other) => !(other in COLUMNS))].join();
    this.change({ columns: all === Object.keys(COLUMNS).join() ? '' : all || 'run', offset: String(this.offset || '') });
  }

  showAll(): void {
    this.change({ search: '', status: '', environment: '', tag: '' });
  }

  #orderOf(key: string): 'asc' | 'desc' {
    return key in COLUMNS && !WORDS.includes(key) ? 'desc' : 'asc';
  }
}

export const view = new ListView();
