// The small curves of the list, asked for when their rows come into sight, a few at a time.

import type { Action } from 'svelte/action';
import { get } from '../api/client';

const POINTS = 40;
const AT_ONCE = 3;

export class Sparks {
  of = $state.raw<Record<string, (number | null)[]>>({});
  #asked = new Set<string>();
  #waiting: string[] = [];
  #asking = 0;
  #isHeld = false;
  #seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting) this.#want((target as HTMLElement).dataset.run ?? '');
    }
  });

  /** On the row of a run; of one that is gone before its turn nobody wants the curve. */
  row: Action<HTMLElement> = (row) => {
    this.#seen.observe(row);
    return {
      destroy: () => {
        this.#seen.unobserve(row);
        const place = this.#waiting.indexOf(row.dataset.run ?? '');
        if (place >= 0) this.#asked.delete(this.#waiting.splice(place, 1)[0] ?? '');
      },
    };
  };

  /** Ask for no more while something else is waited for. */
  hold(isHeld: boolean): void {
    this.#isHeld = isHeld;
    this.#ask();
  }

  /** One more point, of a run whose curve is shown. */
  grow(run: string, value: number | null): void {
    const before = this.of[run];
    if (before) this.of = { ...this.of, [run]: [...before, value].slice(-4 * POINTS) };
  }

  close(): void {
    this.#waiting = [];
    this.#seen.disconnect();
  }

  #want(run: string): void {
    if (this.#asked.has(run)) return;
    this.#asked.add(run);
    this.#waiting.push(run);
    this.#ask();
  }

  #ask(): void {
    while (!this.#isHeld && this.#asking < AT_ONCE && this.#waiting.length) {
      const run = this.#waiting.shift() ?? '';
      this.#asking++;
      get('/api/v1/runs/{run}/metrics', { run, query: { names: 'mean_return_100', points: POINTS } })
        .then((found) => (this.of = { ...this.of, [run]: found.series[0]?.value ?? [] }))
        .catch(() => this.#asked.delete(run))
        .finally(() => {
          this.#asking--;
          this.#ask();
        });
    }
  }
}
