// Doing things later, and not too often.

/** Call at most once in `ms`, the last time too. */
export function throttle(ms: number, act: () => void): { (): void; cancel(): void } {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let last = -Infinity;
  const call = () => {
    if (timer !== undefined) return;
    const wait = Math.max(0, last + ms - performance.now());
    timer = setTimeout(() => {
      timer = undefined;
      last = performance.now();
      act();
    }, wait);
  };
  return Object.assign(call, {
    cancel: () => {
      clearTimeout(timer);
      timer = undefined;
    },
  });
}

/** Call once nothing was asked for `ms`. */
export function debounce<A extends unknown[]>(ms: number, act: (...values: A) => void) {
  let timer: ReturnType<typeof setTimeout> | undefined;
  return (...values: A) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...values), ms);
  };
}

/** Call now and every `ms` while someone looks; returns what ends it. */
export function poll(ms: number, act: () => void): () => void {
  const look = () => {
    if (!document.hidden) act();
  };
  const timer = setInterval(look, ms);
  document.addEventListener('visibilitychange', look);
  act();
  return () => {
    clearInterval(timer);
    document.removeEventListener('visibilitychange', look);
  };
}
