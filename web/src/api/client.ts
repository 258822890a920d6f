// REST, typed by the server's own OpenAPI document: a path or a field that it does not have is an
// error of the compiler.

import { access } from './access.svelte';
import type { Problem, paths } from './schema';

type Json<R> = R extends { content: { 'application/json': infer B } } ? B : never;
type Good = 200 | 201 | 202;
type Answered<O> = O extends { responses: infer R }
  ? { [S in keyof R & Good]: Json<R[S]> }[keyof R & Good]
  : never;
type Query<O> = O extends { parameters: { query?: infer Q } } ? NonNullable<Q> : never;
type Sent<O> = O extends { requestBody?: { content: { 'application/json': infer B } } } ? B : never;
type With<M extends string> = {
  [P in keyof paths]: paths[P] extends Record<M, { responses: unknown }> ? P : never;
}[keyof paths];

interface Options<Q> {
  run?: string;
  file?: string;
  group?: string;
  sweep?: string;
  query?: Partial<Q>;
  signal?: AbortSignal;
}

const TRIES = 3; // of a change whose connection broke: its key makes it act once
const PAUSE_MS = 400;

/** What the server refused, or that it did not answer (status 0); the message is for people. */
export class Failed extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export function get<P extends With<'get'>>(
  path: P,
  options: Options<Query<paths[P]['get']>> = {},
): Promise<Answered<paths[P]['get']>> {
  return ask('GET', path, options);
}

export function post<P extends With<'post'>>(
  path: P,
  body: Sent<paths[P]['post']>,
  options: Options<Query<paths[P]['post']>> = {},
): Promise<Answered<paths[P]['post']>> {
  return ask('POST', path, options, body);
}

export function del<P extends With<'delete'>>(
  path: P,
  options: Options<Query<paths[P]['delete']>> = {},
): Promise<Answered<paths[P]['delete']>> {
  return ask('DELETE', path, options);
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

async function ask<T>(
  method: string,
  path: string,
  { run, file, group, sweep, query, signal }: Options<object>,
  body?: unknown,
): Promise<T> {
  const token = access.token;
  if (token === null) throw new Failed(401, 'a token is needed');
  const headers: Record<string, string> = { Authorization: `Bearer ${token}` };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (method !== 'GET') headers['Idempotency-Key'] = newKey();
  const request: RequestInit = { method, headers, signal, cache: 'no-store', credentials: 'omit' };
  if (body !== undefined) request.body = JSON.stringify(body);
  const found = await send(address(path, { run, file, group, sweep }, query), request, method === 'GET' ? 1 : TRIES);
  if (found.status === 401) access.refuse(token);
  if (!found.ok) throw await failureOf(found);
  return (await found.json()) as T;
}

async function send(url: string, request: RequestInit, tries: number): Promise<Response> {
  for (let left = tries - 1; ; left--) {
    try {
      return await fetch(url, request);
    } catch (error) {
      if (request.signal?.aborted) throw error;
      if (left <= 0) throw new Failed(0, 'the server does not answer');
      await new Promise((done) => setTimeout(done, PAUSE_MS));
    }
  }
}

async function failureOf(found: Response): Promise<Failed> {
  try {
    const problem = (await found.json()) as Problem;
    return new Failed(found.status, problem.detail);
  } catch {
    return new Failed(found.status, `the server answered ${found.status}`);
  }
}

function address(path: string, names: Record<string, string | undefined>, query?: object): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(names[name] ?? ''));
  const pairs = Object.entries(query ?? {}).filter(([, value]) => value != null && value !== '');
  const text = new URLSearchParams(pairs.map(([key, value]) => [key, String(value)])).toString();
  return text ? `${filled}?${text}` : filled;
}

/** `crypto.randomUUID` is not there on plain HTTP of another machine. */
function newKey(): string {
  return [...crypto.getRandomValues(new Uint32Array(4))].map((n) => n.toString(36)).join('-');
}
