// What happened to a run, and who changed what: the newest part of both, and the marks of all.

import { get } from '../api/client';
import type { AuditEntry, LogEntry } from '../api/schema';
import type { Message } from '../api/stream.svelte';
import { MOST_MARKS, changeOf, markOf, markOfCommand, type Change, type Mark } from '../charts/marks';

const PAGE = 1000;
const MOST = 400; // entries that are kept, the newest
const ANSWERED_LATE = 200; // entries back in which a command may still get its answer

export class RunLog {
  events = $state.raw<LogEntry[]>([]);
  audit = $state.raw<AuditEntry[]>([]);
  marks = $state.raw<Mark[]>([]);
  #changes: Change[] = [];
  #ofEvents: Mark[] = [];
  #lastEvent = -1;

  constructor(readonly run: string) {}

  async load(): Promise<void> {
    await Promise.all([this.loadEvents(), this.loadAudit()]);
  }

  /** All that came since, a page at a time. */
  async loadEvents(): Promise<void> {
    for (let more = true; more; ) {
      const query = { after: this.#lastEvent, limit: PAGE };
      const page = await get('/api/v1/runs/{run}/events', { run: this.run, query });
      this.#take(page.entries);
      more = page.next !== null;
    }
  }

  async loadAudit(): Promise<void> {
    const kept = this.audit.slice(0, Math.max(0, this.audit.length - ANSWERED_LATE));
    let after = kept.at(-1)?.seq ?? -1;
    let found = kept;
    for (let more = true; more; ) {
      const page = await get('/api/v1/runs/{run}/audit', { run: this.run, query: { after, limit: PAGE } });
      found = [...found, ...page.entries].slice(-MOST);
      more = page.next !== null;
      after = page.next ?? after;
    }
    this.audit = found;
    this.#mark();
  }

  takeMessages(messages: Message[]): void {
    this.#take(messages);
  }

  #take(entries: (LogEntry | Message)[]): void {
    const fresh = entries.filter((entry) => entry.seq > this.#lastEvent);
    if (!fresh.length) return;
    this.#lastEvent = fresh.at(-1)?.seq ?? this.#lastEvent;
    this.events = [...this.events, ...fresh].slice(-MOST);
    for (const entry of fresh) {
      const mark = markOf(entry);
      if (mark) this.#ofEvents.push(mark);
      const change = changeOf(entry);
      if (change) this.#changes.push(change);
    }
    this.#ofEvents = this.#ofEvents.slice(-MOST_MARKS);
    this.#changes = this.#changes.slice(-MOST);
    this.#mark();
  }

  #mark(): void {
    const commands = this.audit.map((entry) => markOfCommand(entry, this.#changes)).filter((mark): mark is Mark => mark !== null);
    const all = [...this.#ofEvents, ...commands].sort((a, b) => a.time_s - b.time_s);
    this.marks = all.slice(-MOST_MARKS);
  }
}
