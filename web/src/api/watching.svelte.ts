// A game played live: one WebSocket to /api/v1/watch, behind which a process plays for this page.
//
//   const watching = new Watching();
//   watching.ask({ run, weights: 'newest', sampled: false, players: [], seed: null });
//   watching.frame      // the newest one; those that came too fast to be drawn are left out
//   watching.close();
//
// A connection that is lost comes back by itself and asks for the same again. A page that nobody
// looks at for a minute lets its process go, and has a new one when somebody looks again.

import { access } from './access.svelte';
import type { ChoiceHead, Frame, NumberHead, Refused, SeatFrame, Watching as Told } from './schema';

// the server's own words, from its document
export type Choice = ChoiceHead;
export type Amount = NumberHead;
export type Head = SeatFrame['heads'][number];
export type Seat = SeatFrame;
export type { Frame, Told };

type Said =
  | { type: 'ready' }
  | { type: 'error'; detail: string }
  | Refused
  | Told
  | Frame;

/** Who sits where: by seat, or some players who alternate over the seats, whatever these are. */
export type Players = Record<string, string> | string[];

export interface Asked {
  run: string;
  weights: string;
  sampled: boolean;
  players: Players;
  seed: number | null;
  game?: string; // of a match, to be shown again
}

export interface Ended {
  episode: number;
  returns: number[]; // by seat
}

type State = 'off' | 'starting' | 'asking' | 'live' | 'refused' | 'full' | 'denied' | 'lost' | 'asleep';

const FIRST_MS = 400;
const MOST_MS = 10_000;
const UNSEEN_MS = 60_000; // without anybody looking
const SETTLE_MS = 700; // frames on their way do not know yet what was pressed
const MOST_ENDED = 10;
const BAD_MESSAGE = 4400;
const BAD_TOKEN = 4401;
const BAD_SCOPE = 4403;
const TOO_MANY = 4429;

export class Watching {
  state = $state<State>('off');
  detail = $state(''); // what the server said last of why not
  told = $state.raw<Told | null>(null);
  frame = $state.raw<Frame | null>(null);
  isPlaying = $state(true);
  fps = $state(0); // 0: not known yet
  ended = $state.raw<Ended[]>([]); // the newest last
  values = $state.raw<Record<string, number[]>>({}); // of this episode, by seat

  #socket: WebSocket | null = null;
  #asked: Asked | null = null;
  #seats: string[] | null = null; // of #asked.run
  #isReady = false;
  #hasChosenFps = false;
  #wait = FIRST_MS;
  #again: ReturnType<typeof setTimeout> | undefined;
  #unseen: ReturnType<typeof setTimeout> | undefined;
  #newest: Frame | null = null;
  #drawing = 0;
  #pressed_ms = -Infinity;
  #tracks = new Map<string, Track>();

  constructor() {
    document.addEventListener('visibilitychange', this.#looked);
    addEventListener('online', this.#looked);
    addEventListener('pagehide', this.#left);
  }

  /** Show this from a new episode on, in place of what was shown. */
  ask(asked: Asked): void {
    if (asked.run !== this.#asked?.run) {
      this.#seats = null;
      this.told = null;
      this.frame = null;
    }
    this.#asked = asked;
    this.detail = '';
    this.#forget();
    if (this.#isReady) this.#send();
    else if (this.#socket === null) this.retry();
  }

  /** Now, and not only after a while. */
  retry(): void {
    clearTimeout(this.#again);
    this.#wait = FIRST_MS;
    if (this.#isReady) this.#send();
    else if (this.#socket === null) this.#connect();
  }

  play(): void {
    this.#press(true, { type: 'play' });
  }

  pause(): void {
    this.#press(false, { type: 'pause' });
  }

  step(): void {
    this.#press(false, { type: 'step' });
  }

  /** Only a game that is shown again has a place to go to. */
  seek(step: number): void {
    this.#press(false, { type: 'seek', step });
  }

  restart(): void {
    this.#say({ type: 'restart' });
  }

  speed(fps: number): void {
    this.fps = fps;
    this.#hasChosenFps = true;
    this.#say({ type: 'speed', fps });
  }

  close(): void {
    document.removeEventListener('visibilitychange', this.#looked);
    removeEventListener('online', this.#looked);
    removeEventListener('pagehide', this.#left);
    clearTimeout(this.#unseen);
    this.#leave('off');
  }

  // --- the connection ----------------------------------------------------------------------------

  #connect(): void {
    const token = access.token;
    if (token === null || this.#asked === null) return;
    if (this.state !== 'lost' && this.state !== 'full') this.state = 'starting';
    const address = new URL('/api/v1/watch', location.href);
    address.protocol = address.protocol.replace('http', 'ws');
    const socket = new WebSocket(address);
    this.#socket = socket;
    socket.onopen = () => socket.send(JSON.stringify({ type: 'hello', token }));
    socket.onmessage = (event) => {
      if (socket === this.#socket) this.#take(JSON.parse(String(event.data)) as Said);
    };
    socket.onclose = (event) => {
      if (socket === this.#socket) this.#closed(event.code, token);
    };
  }

  #closed(code: number, token: string): void {
    this.#socket = null;
    this.#isReady = false;
    switch (code) {
      case BAD_TOKEN:
        this.#leave('off');
        access.refuse(token);
        break;
      case BAD_SCOPE:
        this.#leave('denied');
        break;
      case BAD_MESSAGE:
        this.#leave('refused');
        break;
      case TOO_MANY:
        this.state = 'full';
        this.#later(MOST_MS);
        break;
      default:
        this.state = 'lost';
        this.#later(this.#wait);
        this.#wait = Math.min(MOST_MS, this.#wait * 1.7);
    }
  }

  #later(wait: number): void {
    clearTimeout(this.#again);
    this.#again = setTimeout(() => this.#connect(), wait * (0.75 + Math.random() / 2));
  }

  #leave(state: State): void {
    const socket = this.#socket;
    this.#socket = null;
    this.#isReady = false;
    clearTimeout(this.#again);
    cancelAnimationFrame(this.#drawing);
    this.#drawing = 0;
    socket?.close();
    this.state = state;
  }

  #looked = (): void => {
    clearTimeout(this.#unseen);
    if (document.hidden) this.#unseen = setTimeout(() => this.#leave('asleep'), UNSEEN_MS);
    else if (this.state === 'asleep' || (this.state === 'lost' && this.#socket === null)) this.retry();
  };

  #left = (): void => this.#leave('asleep');

  // --- what we say -------------------------------------------------------------------------------

  #say(message: object): void {
    if (this.#isReady) this.#socket?.send(JSON.stringify(message));
  }

  #press(isPlaying: boolean, message: object): void {
    this.isPlaying = isPlaying;
    this.#pressed_ms = performance.now();
    this.#say(message);
  }

  #send(): void {
    if (this.#asked === null) return;
    const players = Array.isArray(this.#asked.players)
      ? seated(this.#asked.players, this.#seats ?? [])
      : this.#asked.players;
    this.state = this.frame === null ? 'starting' : 'asking';
    this.#say({ type: 'watch', ...this.#asked, players, fps: this.#hasChosenFps ? this.fps : null });
  }

  // --- what we hear ------------------------------------------------------------------------------

  #take(said: Said): void {
    switch (said.type) {
      case 'ready':
        this.#isReady = true;
        this.#wait = FIRST_MS;
        this.#send();
        if (!this.isPlaying) this.#say({ type: 'pause' }); // as it was before the connection was lost
        break;
      case 'watching':
        this.#begin(said);
        break;
      case 'frame':
        if (this.state === 'live') this.#keep(said); // else it is of what was shown before
        break;
      case 'refused':
        this.#forget();
        this.frame = null; // what was shown before is over too
        this.state = 'refused';
        this.detail = said.detail;
        break;
      case 'error':
        this.detail = said.detail;
    }
  }

  #begin(told: Told): void {
    const isFirst = this.#seats === null;
    this.#seats = told.seats;
    if (isFirst && Array.isArray(this.#asked?.players) && this.#asked.players.length) {
      this.#send(); // now that it is known which seats there are
      return;
    }
    this.told = told;
    this.detail = '';
    this.fps = told.fps;
    this.#settle(told.playing);
    this.#forget();
    this.state = 'live';
  }

  /** Note what must not be missed, and draw the newest when the screen is ready for it. */
  #keep(frame: Frame): void {
    this.#note(frame);
    this.#newest = frame;
    if (this.#drawing) return;
    this.#drawing = requestAnimationFrame(() => {
      this.#drawing = 0;
      this.frame = this.#newest;
      if (this.frame) this.#settle(this.frame.playing);
      this.values = Object.fromEntries([...this.#tracks].map(([seat, track]) => [seat, track.values]));
    });
  }

  #note(frame: Frame): void {
    const last = this.#newest;
    if (last === null || frame.episode !== last.episode || frame.step < last.step) this.#tracks.clear();
    for (const [seat, at] of Object.entries(frame.seats)) {
      if (at.value === null || frame.over) continue;
      let track = this.#tracks.get(seat);
      if (!track) this.#tracks.set(seat, (track = new Track()));
      track.add(at.value);
    }
    if (frame.over && this.ended.at(-1)?.episode !== frame.episode) {
      const returns = Object.values(frame.seats).map((at) => at.return);
      this.ended = [...this.ended, { episode: frame.episode, returns }].slice(-MOST_ENDED);
    }
  }

  #settle(isPlaying: boolean): void {
    if (performance.now() - this.#pressed_ms > SETTLE_MS) this.isPlaying = isPlaying;
  }

  /** Another player's episodes do not belong to what comes now. */
  #forget(): void {
    cancelAnimationFrame(this.#drawing);
    this.#drawing = 0;
    this.#newest = null;
    this.#tracks.clear();
    this.values = {};
    this.ended = [];
  }
}

/** A value over an episode, however long: when there are too many points every second one goes. */
class Track {
  values: number[] = [];
  #stride = 1;
  #skipped = 0;
  static readonly MOST = 240;

  add(value: number): void {
    if (++this.#skipped < this.#stride) return;
    this.#skipped = 0;
    this.values = [...this.values, value];
    if (this.values.length <= Track.MOST) return;
    this.values = this.values.filter((_, i) => i % 2 === 0);
    this.#stride *= 2;
  }
}

/** The players in turn over the seats: a, b, a, b. */
export function seated(players: string[], seats: string[]): Record<string, string> {
  if (!players.length) return {};
  return Object.fromEntries(seats.map((seat, i) => [seat, players[i % players.length] ?? '']));
}
