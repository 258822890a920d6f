// What is watched, in the address, so that it can be linked and survives a reload.
//
//   #/runs/RUN/watch?weights=main@340&players=player_0=policy;player_1=script:random
//   #/runs/RUN/watch?players=RUN@0;RUN@340          two who alternate over the seats

import type { Asked, Players } from '../api/watching.svelte';
import { linkTo } from './router.svelte';

const SEATED = /^([\w.-]+)=(.*)$/; // a player's name has a colon, an @ or nothing before its first =

export function askedIn(run: string, query: URLSearchParams): Asked {
  const seed = query.get('seed');
  return {
    run,
    weights: query.get('weights') || 'newest',
    sampled: query.get('sampled') === 'true',
    players: playersIn(query.get('players') ?? ''),
    seed: seed !== null && /^\d{1,9}$/.test(seed) ? Number(seed) : null,
  };
}

export function watchLink({ run, weights, sampled, players, seed }: Asked): string {
  const query = new URLSearchParams();
  if (weights !== 'newest') query.set('weights', weights);
  if (sampled) query.set('sampled', 'true');
  const named = Array.isArray(players) ? players : Object.entries(players).map((pair) => pair.join('='));
  if (named.length) query.set('players', named.join(';'));
  if (seed !== null) query.set('seed', String(seed));
  const text = query.toString();
  return linkTo(run, 'watch') + (text ? `?${text}` : '');
}

function playersIn(text: string): Players {
  const parts = text.split(';').filter(Boolean);
  const pairs = parts.map((part) => SEATED.exec(part));
  if (!parts.length || pairs.some((pair) => pair === null)) return parts;
  return Object.fromEntries(pairs.map((pair) => [pair?.[1] ?? '', pair?.[2] ?? '']));
}
