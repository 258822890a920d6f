// The form of a run, from the JSON Schema of its config: which fields there are, how a typed text
// becomes a value, and to which field the server's words belong.

export interface Schema {
  type?: string;
  title?: string;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  const?: unknown;
  anyOf?: Schema[];
  oneOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  additionalProperties?: boolean | Schema;
  required?: string[];
  discriminator?: { propertyName: string; mapping: Record<string, string> };
  $ref?: string;
  $defs?: Record<string, Schema>;
  live?: boolean;
}

export type Kind = 'choice' | 'flag' | 'number' | 'list' | 'text' | 'data';

export interface Field {
  path: string; // as in a config: algorithm.learning_rate
  key: string;
  kind: Kind;
  choices: string[];
  hint: string;
  fallback: unknown; // what it is when it is left out
  isNumeric: boolean; // of a list's items
  isLive: boolean;
}

export interface Section {
  key: string; // '' for the run's own fields
  title: string;
  hint: string;
  kinds: string[]; // of a part that comes in kinds
  fields: Field[];
}

/** Texts as they were typed, by path; a field that is not here is left out of the config. */
export type Typed = Record<string, string>;

const TITLES: Record<string, string> = { '': 'Seats, policies, launcher', bus: 'Bus' };

/** The form's parts, for the kinds that were chosen. */
export function sectionsOf(root: Schema, typed: Typed): Section[] {
  const own: Field[] = [];
  const sections: Section[] = [];
  for (const [key, found] of Object.entries(root.properties ?? {})) {
    const part = resolve(root, found);
    if (part.discriminator) {
      const mapping = part.discriminator.mapping;
      const kind = typed[`${key}.kind`] || kindOf(part.default);
      const chosen = resolve(root, { $ref: mapping[kind] ?? Object.values(mapping)[0] });
      sections.push(section(root, key, chosen, Object.keys(mapping)));
    } else if (part.properties) {
      sections.push(section(root, key, part, []));
    } else {
      own.push(fieldOf(root, key, key, part));
    }
  }
  sections.push({ key: '', title: TITLES[''] ?? '', hint: '', kinds: [], fields: own });
  return sections;
}

function section(root: Schema, key: string, part: Schema, kinds: string[]): Section {
  const fields = Object.entries(part.properties ?? {})
    .filter(([, field]) => field.const === undefined)
    .map(([name, field]) => fieldOf(root, `${key}.${name}`, name, field));
  const title = TITLES[key] ?? key.charAt(0).toUpperCase() + key.slice(1);
  return { key, title, hint: part.description ?? '', kinds, fields };
}

function fieldOf(root: Schema, path: string, key: string, found: Schema): Field {
  const part = resolve(root, found);
  const bare = part.anyOf?.map((one) => resolve(root, one)).find((one) => one.type !== 'null') ?? part;
  const items = bare.items ? resolve(root, bare.items) : undefined;
  return {
    path,
    key,
    kind: kindOfField(bare),
    choices: (bare.enum ?? []).map(String),
    hint: part.description ?? '',
    fallback: part.default,
    isNumeric: items?.type === 'integer' || items?.type === 'number',
    isLive: part.live ?? false,
  };
}

function kindOfField(part: Schema): Kind {
  if (part.enum) return 'choice';
  switch (part.type) {
    case 'boolean':
      return 'flag';
    case 'integer':
    case 'number':
      return 'number';
    case 'array':
      return 'list';
    case 'string':
      return 'text';
    default:
      return 'data';
  }
}

function resolve(root: Schema, part: Schema): Schema {
  const name = part.$ref?.split('/').at(-1);
  if (name === undefined) return part;
  return { ...root.$defs?.[name], ...part, $ref: undefined };
}

function kindOf(found: unknown): string {
  return String((found as { kind?: unknown } | undefined)?.kind ?? '');
}

/** What a field shows where nothing is typed. */
export function shown(value: unknown): string {
  if (value === null || value === undefined || value === '') return 'none';
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (Array.isArray(value)) return value.length ? value.join(', ') : 'none';
  if (typeof value === 'object') return Object.keys(value).length ? JSON.stringify(value) : 'none';
  return String(value);
}

/** A typed text as a config has it; what cannot be read is sent as it is, for the server to judge. */
export function valueOf(field: Field, text: string): unknown {
  switch (field.kind) {
    case 'flag':
      return text === 'yes';
    case 'number':
      return numberOf(text);
    case 'list': {
      const parts = text.split(',').map((part) => part.trim()).filter(Boolean);
      return field.isNumeric ? parts.map(numberOf) : parts;
    }
    case 'data':
      try {
        return JSON.parse(text) as unknown;
      } catch {
        return text;
      }
    default:
      return text;
  }
}

function numberOf(text: string): number | string {
  const plain = text.trim().replaceAll('_', '');
  const found = Number(plain);
  return plain !== '' && Number.isFinite(found) ? found : text.trim();
}

function textOf(field: Field, value: unknown): string {
  if (value === null || value === undefined) return '';
  if (field.kind === 'data') return Object.keys(value).length ? JSON.stringify(value) : '';
  if (field.kind === 'list') return (value as unknown[]).join(', ');
  if (field.kind === 'flag') return value ? 'yes' : 'no';
  return String(value);
}

type Config = Record<string, unknown>;

/**
 * The config of what was typed; where it stands as `base` has it, exactly what `base` has: a null or
 * an empty list there is not the same as nothing said.
 */
export function configOf(sections: Section[], typed: Typed, base: Config | null): Config {
  const config: Config = {};
  for (const { key, kinds, fields } of sections) {
    const part: Config = key ? {} : config;
    const given = (key ? base?.[key] : base) as Config | null | undefined;
    if (kinds.length && typed[`${key}.kind`]) part.kind = typed[`${key}.kind`];
    for (const field of fields) {
      const text = typed[field.path] ?? '';
      if (given && field.key in given && text === textOf(field, given[field.key])) part[field.key] = given[field.key];
      else if (text !== '') part[field.key] = valueOf(field, text);
    }
    if (key && Object.keys(part).length) config[key] = part;
  }
  return config;
}

/** What is typed where a config is given. */
export function typedOf(root: Schema, config: Config): Typed {
  const typed: Typed = {};
  for (const key of ['algorithm', 'bus']) typed[`${key}.kind`] = kindOf(config[key]);
  for (const { key, fields } of sectionsOf(root, typed)) {
    const part = (key ? config[key] : config) as Config | undefined;
    for (const field of fields) {
      const text = textOf(field, part?.[field.key]);
      if (text !== '') typed[field.path] = text;
    }
  }
  return typed;
}

export interface Complaints {
  fields: Record<string, string>; // by path
  general: string[];
}

/** The server's one line, taken apart: what it says of a field goes beside that field. */
export function complaintsOf(detail: string, paths: readonly string[]): Complaints {
  const known = new Set(paths);
  const found: Complaints = { fields: {}, general: [] };
  let last = '';
  for (const part of detail.split('; ')) {
    const path = pathIn(part, known);
    if (path) {
      const text = part.startsWith(`${path}: `) ? part.slice(path.length + 2) : part;
      found.fields[path] = found.fields[path] ? `${found.fields[path]}; ${text}` : text;
      last = path;
    } else if (last && /^(did you mean|use|known|try)\b/.test(part)) {
      found.fields[last] += `; ${part}`;
    } else {
      found.general.push(part);
      last = '';
    }
  }
  return found;
}

function pathIn(part: string, known: Set<string>): string {
  if (/^unknown environment\b|^environment '/.test(part)) return 'environment.id';
  let path = /^[a-z_]+(\.[A-Za-z0-9_]+)*/.exec(part)?.[0] ?? '';
  if (!/^[:= ]/.test(part.slice(path.length))) return '';
  while (path) {
    if (known.has(path)) return path; // hidden.0 belongs to hidden
    path = path.includes('.') ? path.slice(0, path.lastIndexOf('.')) : '';
  }
  return '';
}
