// The stream: one WebSocket for the whole page, which comes back by itself and misses nothing.
//
//   const stop = stream.follow(['*'], ['events', 'metrics'], { messages, fresh, gap })
//
// Each channel's last `seq` is kept; after a reconnect the server goes on from there. What it had
// to leave out is said to the follower as a gap, to be read by REST.

import { access } from './access.svelte';

export type Kind = 'events' | 'commands' | 'metrics' | 'actors';

export interface Message {
  channel: string;
  seq: number;
  run: string;
  kind: string;
  time_s: number;
  data: Record<string, unknown>;
}

export interface Handlers {
  messages: (messages: Message[]) => void;
  /** From here on every message comes: read by REST what was before. */
  fresh?: () => void;
  /** Messages of a channel were left out: read them by REST. */
  gap?: (channel: string) => void;
}

type Frame =
  | { type: 'ready' }
  | { type: 'subscribed'; at: Record<string, number> }
  | { type: 'batch'; messages: Message[] }
  | { type: 'left_out'; channel: string; from: number; to: number; count: number }
  | { type: 'error'; detail: string };

interface Follower {
  runs: string[];
  kinds: Kind[];
  handlers: Handlers;
  isFresh: boolean;
}

const FIRST_MS = 400;
const MOST_MS = 10_000;
const BAD_TOKEN = 4401;
const TOO_MANY = 4429;

class Stream {
  state = $state<'off' | 'connecting' | 'live' | 'lost'>('off');
  #socket: WebSocket | null = null;
  #followers = new Set<Follower>();
  #known: Record<string, number> = {}; // channel -> the last seq that we have
  #isNew = true; // the connection has not confirmed a subscription yet
  #isReady = false;
  #wait = FIRST_MS;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #resubscribing = false;

  constructor() {
    addEventListener('online', () => this.#hurry());
    document.addEventListener('visibilitychange', () => this.#hurry());
  }

  follow(runs: string[], kinds: Kind[], handlers: Handlers): () => void {
    const follower: Follower = { runs, kinds, handlers, isFresh: true };
    this.#followers.add(follower);
    this.#changed();
    return () => {
      this.#followers.delete(follower);
      this.#changed();
    };
  }

  /** Connect with the token of now; called when it changes. */
  restart(): void {
    clearTimeout(this.#timer);
    this.#close();
    this.#known = {};
    for (const follower of this.#followers) follower.isFresh = true;
    this.#wait = FIRST_MS;
    if (access.token === null) this.state = 'off';
    else this.#connect();
  }

  #connect(): void {
    const token = access.token;
    if (token === null) return;
    if (this.state !== 'lost') this.state = 'connecting';
    const address = new URL('/api/v1/stream', location.href);
    address.protocol = address.protocol.replace('http', 'ws');
    const socket = new WebSocket(address);
    this.#socket = socket;
    this.#isNew = true;
    this.#isReady = false;
    socket.onopen = () => socket.send(JSON.stringify({ type: 'hello', token }));
    socket.onmessage = (event) => {
      if (socket === this.#socket) this.#take(JSON.parse(String(event.data)) as Frame);
    };
    socket.onclose = (event) => {
      if (socket !== this.#socket) return;
      this.#close();
      if (event.code === BAD_TOKEN) {
        this.state = 'off';
        access.refuse(token);
        return;
      }
      this.state = 'lost';
      this.#later(event.code === TOO_MANY ? MOST_MS : this.#wait);
    };
  }

  #close(): void {
    const socket = this.#socket;
    this.#socket = null;
    this.#isReady = false;
    socket?.close();
  }

  #later(wait: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#connect(), wait * (0.75 + Math.random() / 2));
    this.#wait = Math.min(MOST_MS, this.#wait * 1.7);
  }

  /** Someone looks at the page, or the network is back: do not wait. */
  #hurry(): void {
    if (this.state !== 'lost' || this.#socket !== null || document.hidden) return;
    clearTimeout(this.#timer);
    this.#wait = FIRST_MS;
    this.#connect();
  }

  #take(frame: Frame): void {
    switch (frame.type) {
      case 'ready':
        this.state = 'live';
        this.#wait = FIRST_MS;
        this.#isReady = true;
        this.#subscribe();
        break;
      case 'subscribed':
        this.#subscribed(frame.at);
        break;
      case 'batch':
        this.#batch(frame.messages);
        break;
      case 'left_out':
        this.#known[frame.channel] = Math.max(this.#known[frame.channel] ?? -1, frame.to);
        for (const follower of this.#followers) {
          if (wants(follower, frame.channel)) follower.handlers.gap?.(frame.channel);
        }
        break;
      case 'error':
        console.warn('stream:', frame.detail);
    }
  }

  #subscribed(at: Record<string, number>): void {
    const known: Record<string, number> = {};
    for (const [channel, seq] of Object.entries(at)) {
      // what came between our asking and the answer on this connection is not wanted twice
      known[channel] = this.#isNew ? seq : Math.max(seq, this.#known[channel] ?? -1);
    }
    this.#known = known;
    this.#isNew = false;
    for (const follower of this.#followers) {
      if (follower.isFresh) {
        follower.isFresh = false;
        follower.handlers.fresh?.();
      }
    }
  }

  #batch(messages: Message[]): void {
    const fresh = messages.filter((m) => m.seq > (this.#known[m.channel] ?? -1));
    for (const message of fresh) this.#known[message.channel] = message.seq;
    for (const follower of this.#followers) {
      const wanted = fresh.filter(
        (m) => wants(follower, m.channel) && (follower.runs[0] === '*' || follower.runs.includes(m.run)),
      );
      if (wanted.length) follower.handlers.messages(wanted);
    }
  }

  /** Pages come and go together: ask once for all. */
  #changed(): void {
    if (this.#resubscribing) return;
    this.#resubscribing = true;
    queueMicrotask(() => {
      this.#resubscribing = false;
      this.#subscribe();
    });
  }

  #subscribe(): void {
    if (!this.#isReady || this.#socket === null || this.#followers.size === 0) return;
    const all = [...this.#followers];
    const runs = all.some((f) => f.runs.includes('*')) ? ['*'] : unique(all.flatMap((f) => f.runs));
    const kinds = unique(all.flatMap((f) => f.kinds));
    if (!runs.length) return;
    const kept = Object.entries(this.#known).filter(([channel]) => {
      const [kind = '', run] = split(channel);
      return kinds.includes(kind as Kind) && (run === '' || runs[0] === '*' || runs.includes(run));
    });
    const after = Object.fromEntries(kept);
    this.#socket.send(JSON.stringify({ type: 'subscribe', runs, kinds, after }));
  }
}

function wants(follower: Follower, channel: string): boolean {
  const [kind, run] = split(channel);
  if (!follower.kinds.includes(kind as Kind)) return false;
  return run === '' || follower.runs[0] === '*' || follower.runs.includes(run);
}

function split(channel: string): [string, string] {
  const at = channel.indexOf('/');
  return at < 0 ? [channel, ''] : [channel.slice(0, at), channel.slice(at + 1)];
}

function unique<T>(items: T[]): T[] {
  return [...new Set(items)];
}

export const stream = new Stream();
