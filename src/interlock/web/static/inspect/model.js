// What a form shows for a JSON Schema: a pure function of schema and value, one level at a time.
// What cannot be shown as fields is shown as JSON, with the reason.

import { isBranch, isNumber, stringify } from "../shared/exact.js";

const MOST_STEPS = 1000; // subschemas that are looked at for one field
const DEEPEST = 24; // levels of fields
const MANY_CHOICES = 500;

/** @typedef {import("./types.js").Schema} Schema @typedef {import("./types.js").Shape} Shape */

class Complex extends Error {}

/**
 * Return what a form shows for a value.
 * @param {Schema} schema
 * @param {Schema} root The document, which references lead into.
 * @param {unknown} value As it is now; undefined for none.
 * @param {number} depth The level of the field.
 * @returns {Shape}
 */
export function shapeOf(schema, root, value, depth = 0) {
  if (depth > DEEPEST) return json(schema, "deep");
  const budget = { steps: MOST_STEPS };
  let whole;
  try {
    whole = merged(schema, root, value, budget, new Set());
  } catch (error) {
    if (error instanceof Complex) return json(schema, error.message);
    throw error;
  }
  return shaped(whole);
}

/** @param {Schema} schema @param {string} why @returns {Shape} */
function json(schema, why) {
  return { kind: "json", schema: isObject(schema) ? schema : {}, why };
}

/** @param {Schema} schema @returns {Shape} */
function shaped(schema) {
  if (schema === false) return json({}, "never");
  if ("const" in schema) return { kind: "const", schema };
  if (Array.isArray(schema.enum)) {
    if (schema.enum.length === 1) return { kind: "const", schema: { ...schema, const: schema.enum[0] } };
    return { kind: "choice", schema, choices: schema.enum };
  }
  for (const keyword of ["oneOf", "anyOf"]) {
    if (Array.isArray(schema[keyword])) return alternatives(schema, keyword);
  }
  const types = Array.isArray(schema.type) ? schema.type : schema.type === undefined ? impliedBy(schema) : [schema.type];
  if (types.length > 1) {
    return { kind: "variants", schema, variants: types.map((/** @type {string} */ type) => ({ ...schema, title: type, type })) };
  }
  switch (types[0]) {
    case "object":
      return objectOf(schema);
    case "array":
      return arrayOf(schema);
    case "string":
      return { kind: "text", schema };
    case "integer":
    case "number":
      return { kind: "number", schema };
    case "boolean":
    case "null":
      return { kind: types[0], schema };
  }
  return json(schema, "any");
}

/** @param {Schema} schema @param {string} keyword @returns {Shape} */
function alternatives(schema, keyword) {
  const { [keyword]: given, ...rest } = schema;
  const found = given.filter((/** @type {Schema} */ each) => each !== false);
  if (found.length === 0) return json(schema, "never");
  const isConst = (/** @type {Schema} */ each) => isObject(each) && "const" in each;
  if (found.every(isConst)) return { kind: "choice", schema, choices: found.map((/** @type {any} */ each) => each.const) };
  // A title of the whole is not that of an alternative.
  const { title: _, description: __, default: ___, ...base } = rest;
  const variants = found.map((/** @type {Schema} */ each) => (Object.keys(base).length ? { allOf: [base, each], ...named(each) } : each));
  return { kind: "variants", schema, variants };
}

/** @param {Schema} schema */
function named(schema) {
  return isObject(schema) && schema.title ? { title: schema.title } : {};
}

const IMPLIED = /** @type {const} */ ([
  ["object", ["properties", "additionalProperties", "patternProperties", "required", "minProperties", "maxProperties"]],
  ["array", ["items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"]],
  ["string", ["pattern", "minLength", "maxLength", "format"]],
  ["number", ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]],
]);

/** @param {Schema} schema @returns {string[]} */
function impliedBy(schema) {
  const found = IMPLIED.filter(([, keywords]) => keywords.some((each) => each in schema));
  return found.length === 1 ? found.map(([type]) => type) : [];
}

/** @param {Schema} schema @returns {Shape} */
function objectOf(schema) {
  const properties = isObject(schema.properties) ? schema.properties : {};
  const required = new Set(Array.isArray(schema.required) ? schema.required.map(String) : []);
  const names = [...Object.keys(properties), ...[...required].filter((each) => !Object.hasOwn(properties, each))];
  const fields = names
    .filter((name) => properties[name] !== false)
    .map((name) => ({ name, schema: Object.hasOwn(properties, name) ? properties[name] : {}, required: required.has(name) }));
  fields.sort((a, b) => Number(b.required) - Number(a.required));
  const patterns = isObject(schema.patternProperties) ? Object.values(schema.patternProperties) : [];
  const more = schema.additionalProperties;
  const isOpen = more === undefined || more === true;
  if (fields.length === 0 && patterns.length === 0 && isOpen) return json({ ...schema, type: "object" }, "free");
  const others = isObject(more) ? more : (patterns.find(isObject) ?? (more === true ? {} : null));
  return { kind: "object", schema, fields, others };
}

/** @param {Schema} schema @returns {Shape} */
function arrayOf(schema) {
  // Before 2020-12, a list of `items` was what `prefixItems` is now.
  const isOld = Array.isArray(schema.items);
  const first = isOld ? schema.items : Array.isArray(schema.prefixItems) ? schema.prefixItems : [];
  const rest = isOld ? schema.additionalItems : schema.items;
  return { kind: "array", schema, first, items: rest === false ? null : (rest ?? {}) };
}

// Merging

/**
 * Return a schema with references followed, `allOf` merged, and conditions applied to a value.
 * @param {Schema} schema
 * @param {Schema} root
 * @param {unknown} value
 * @param {{steps: number}} budget
 * @param {Set<string>} seen References that are being followed.
 * @returns {Schema}
 */
function merged(schema, root, value, budget, seen) {
  budget.steps -= 1;
  if (budget.steps < 0) throw new Complex("complex");
  if (schema === false) return false;
  if (!isObject(schema)) return {};
  /** @type {Schema[]} */
  const parts = [];
  let own = schema;
  const reference = own.$ref ?? own.$dynamicRef;
  if (typeof reference === "string") {
    if (seen.has(reference)) throw new Complex("loop");
    const target = targetOf(reference, root);
    if (target === undefined) throw new Complex("reference");
    parts.push(merged(target, root, value, budget, new Set([...seen, reference])));
    const { $ref: _, $dynamicRef: __, ...others } = own;
    own = others;
  }
  for (const each of Array.isArray(own.allOf) ? own.allOf : []) parts.push(merged(each, root, value, budget, seen));
  for (const each of conditions(own, root, value)) parts.push(merged(each, root, value, budget, seen));
  const { allOf: _, if: __, then: ___, else: ____, ...plain } = own;
  return parts.concat([plain]).reduce(both);
}

/** @param {Schema} schema @param {Schema} root @param {unknown} value @returns {Schema[]} */
function conditions(schema, root, value) {
  const found = [];
  if (schema.if !== undefined) found.push(fits(schema.if, value ?? {}, root) ? schema.then : schema.else);
  if (isObject(value)) {
    const dependent = { ...schema.dependencies, ...schema.dependentSchemas };
    for (const [name, each] of Object.entries(dependent)) if (Object.hasOwn(value, name) && isObject(each)) found.push(each);
    const required = { ...schema.dependencies, ...schema.dependentRequired };
    for (const [name, each] of Object.entries(required)) {
      if (Object.hasOwn(value, name) && Array.isArray(each)) found.push({ required: each });
    }
  }
  return found.filter((each) => each !== undefined);
}

/** Keywords of which the stricter one holds. */
const LARGER = ["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"];
const SMALLER = ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"];

/** @param {Schema} a @param {Schema} b @returns {Schema} */
function both(a, b) {
  if (a === false || b === false) return false;
  const made = { ...a, ...b };
  if (isObject(a.properties) && isObject(b.properties)) {
    made.properties = { ...a.properties };
    for (const [name, each] of Object.entries(b.properties)) {
      const other = Object.hasOwn(a.properties, name) ? a.properties[name] : undefined;
      Object.defineProperty(made.properties, name, {
        value: other === undefined ? each : { allOf: [other, each] },
        enumerable: true,
        configurable: true,
        writable: true,
      });
    }
  }
  if (Array.isArray(a.required) && Array.isArray(b.required)) made.required = [...new Set([...a.required, ...b.required])];
  if (Array.isArray(a.enum) && Array.isArray(b.enum)) made.enum = a.enum.filter((/** @type {any} */ each) => b.enum.some((/** @type {any} */ other) => same(each, other)));
  for (const keyword of ["oneOf", "anyOf"]) {
    if (Array.isArray(a[keyword]) && Array.isArray(b[keyword])) {
      // Both must hold: the second one stays inside of each alternative of the first one.
      made[keyword] = a[keyword].map((/** @type {Schema} */ each) => ({ allOf: [each, { [keyword]: b[keyword] }], ...named(each) }));
    }
  }
  for (const each of LARGER) if (each in a && each in b) made[each] = Math.max(a[each], b[each]);
  for (const each of SMALLER) if (each in a && each in b) made[each] = Math.min(a[each], b[each]);
  if (a.type !== undefined && b.type !== undefined) {
    const types = typesOf(a.type, b.type);
    if (types.length === 0) return false;
    made.type = types.length === 1 ? types[0] : types;
  }
  if (isObject(a.items) && isObject(b.items)) made.items = { allOf: [a.items, b.items] };
  return made;
}

/** @param {string | string[]} a @param {string | string[]} b */
function typesOf(a, b) {
  const others = [b].flat();
  const found = [a].flat().filter((each) => others.includes(each) || (each === "integer" && others.includes("number")));
  if (others.includes("integer") && [a].flat().includes("number") && !found.includes("integer")) found.push("integer");
  return found;
}

/** @param {string} reference @param {Schema} root @returns {Schema | undefined} */
function targetOf(reference, root) {
  if (!reference.startsWith("#")) return undefined;
  const pointer = reference.slice(1);
  if (pointer === "") return root;
  if (!pointer.startsWith("/")) return anchored(pointer, root);
  let found = root;
  for (const part of pointer.slice(1).split("/")) {
    const name = decoded(part).replaceAll("~1", "/").replaceAll("~0", "~");
    if (found === null || typeof found !== "object" || !Object.hasOwn(found, name)) return undefined;
    found = found[name];
  }
  return found;
}

/** @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** @param {string} name @param {Schema} root */
function anchored(name, root) {
  const places = [root, ...Object.values(root?.$defs ?? {}), ...Object.values(root?.definitions ?? {})];
  return places.find((each) => isObject(each) && (each.$anchor === name || each.$dynamicAnchor === name));
}

// Values

/**
 * Return whether a value fits the simple keywords of a schema. The server checks all of them.
 * @param {Schema} schema
 * @param {any} value
 * @param {Schema} root
 * @param {number} depth
 * @returns {boolean}
 */
export function fits(schema, value, root, depth = 0) {
  if (typeof schema === "boolean") return schema;
  if (!isObject(schema) || depth > 12) return true;
  const inner = (/** @type {Schema} */ each, /** @type {any} */ part = value) => fits(each, part, root, depth + 1);
  if (typeof schema.$ref === "string") {
    const target = targetOf(schema.$ref, root);
    if (target !== undefined && !inner(target)) return false;
  }
  if ("const" in schema && !same(schema.const, value)) return false;
  if (Array.isArray(schema.enum) && !schema.enum.some((/** @type {any} */ each) => same(each, value))) return false;
  if (schema.type !== undefined && ![schema.type].flat().some((each) => isOf(each, value))) return false;
  if (Array.isArray(schema.allOf) && !schema.allOf.every((/** @type {Schema} */ each) => inner(each))) return false;
  for (const keyword of ["anyOf", "oneOf"]) {
    if (Array.isArray(schema[keyword]) && !schema[keyword].some((/** @type {Schema} */ each) => inner(each))) return false;
  }
  if (schema.not !== undefined && inner(schema.not)) return false;
  if (isNumber(value)) {
    if (value < schema.minimum || value > schema.maximum) return false;
    if (value <= schema.exclusiveMinimum || value >= schema.exclusiveMaximum) return false;
  }
  if (Array.isArray(value) && isObject(schema.items)) return value.every((each) => inner(schema.items, each));
  if (!isObject(value)) return true;
  if (Array.isArray(schema.required) && !schema.required.every((/** @type {string} */ each) => Object.hasOwn(value, each))) return false;
  const properties = isObject(schema.properties) ? schema.properties : {};
  if (schema.additionalProperties === false && Object.keys(value).some((each) => !Object.hasOwn(properties, each))) {
    return false;
  }
  return Object.entries(properties).every(([name, each]) => !Object.hasOwn(value, name) || inner(each, value[name]));
}

/** @param {string} type @param {any} value */
function isOf(type, value) {
  if (type === "number") return isNumber(value);
  if (type === "integer") return isNumber(value) && Number.isInteger(value.valueOf());
  if (type === "null") return value === null;
  if (type === "array") return Array.isArray(value);
  if (type === "object") return isObject(value);
  return typeof value === type;
}

/** @param {unknown} a @param {unknown} b */
export function same(a, b) {
  return a === b || stringify(a) === stringify(b);
}

/** @param {unknown} value @returns {value is Record<string, any>} */
export function isObject(value) {
  return isBranch(value) && !Array.isArray(value);
}

/**
 * Return the value of an object's own member.
 * @param {unknown} value
 * @param {string} name
 */
export function member(value, name) {
  return isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
}

/**
 * Return an object with another member; undefined leaves it out.
 * @param {unknown} value
 * @param {string} name
 * @param {unknown} part
 */
export function withMember(value, name, part) {
  const entries = isObject(value) ? Object.entries(value) : [];
  const at = entries.findIndex(([each]) => each === name);
  if (part === undefined) return Object.fromEntries(entries.filter((_, index) => index !== at));
  if (at < 0) entries.push([name, part]);
  else entries[at] = [name, part];
  return Object.fromEntries(entries);
}

/**
 * Return what a field holds at first: its default, or what is required of it.
 * @param {Schema} schema
 * @param {Schema} root
 * @param {number} depth
 * @returns {any}
 */
export function initial(schema, root, depth = 0) {
  const shape = shapeOf(schema, root, undefined, depth);
  if (shape.schema.default !== undefined) return shape.schema.default;
  switch (shape.kind) {
    case "const":
      return shape.schema.const;
    case "null":
      return null;
    case "object":
      return begun(shape, root, depth, initial);
    case "array":
      return [];
    case "variants":
      return initial(shape.variants?.[0], root, depth + 1);
    case "json":
      return shape.schema.type === "object" ? {} : undefined;
  }
  return undefined;
}

/** @param {Shape} shape @param {Schema} root @param {number} depth @param {(schema: Schema, root: Schema, depth: number) => any} make */
function begun(shape, root, depth, make) {
  let made = {};
  for (const each of shape.fields ?? []) {
    if (each.required && depth < DEEPEST) made = withMember(made, each.name, make(each.schema, root, depth + 1));
  }
  return made;
}

const EXAMPLES = /** @type {Record<string, string>} */ ({
  date: "2026-07-28",
  time: "12:00:00Z",
  "date-time": "2026-07-28T12:00:00Z",
  email: "ann@example.com",
  uri: "about:blank",
  uuid: "00000000-0000-4000-8000-000000000000",
  ipv4: "192.0.2.1",
  ipv6: "2001:db8::1",
  hostname: "example.com",
  duration: "PT1H",
});

/**
 * Return a value that fits, as far as the schema says so without a pattern.
 * @param {Schema} schema
 * @param {Schema} root
 * @param {number} depth
 * @returns {any}
 */
export function example(schema, root, depth = 0) {
  if (isObject(schema) && Array.isArray(schema.examples) && schema.examples.length) return schema.examples[0];
  const shape = shapeOf(schema, root, undefined, depth);
  const whole = shape.schema;
  if (whole.default !== undefined) return whole.default;
  if (Array.isArray(whole.examples) && whole.examples.length) return whole.examples[0];
  switch (shape.kind) {
    case "const":
      return whole.const;
    case "choice":
      return shape.choices?.[0];
    case "null":
      return null;
    case "boolean":
      return true;
    case "number":
      return numberIn(whole);
    case "text":
      return textIn(whole);
    case "array":
      return Array.from({ length: Math.min(Math.max(whole.minItems ?? 0, shape.first?.length ?? 0), 50) }, (_, at) =>
        varied(example(shape.first?.[at] ?? shape.items ?? {}, root, depth + 1), whole.uniqueItems ? at : 0),
      );
    case "object":
      return completed(begun(shape, root, depth, example), schema, root, depth);
    case "variants": {
      const found = (shape.variants ?? []).map((each) => example(each, root, depth + 1));
      return found.find((each) => fits(schema, each, root)) ?? found[0];
    }
  }
  return whole.type === "object" ? completed({}, schema, root, depth) : whole.type === "array" ? [] : "";
}

/** Add what conditions on the value require. @param {any} value @param {Schema} schema @param {Schema} root @param {number} depth */
function completed(value, schema, root, depth) {
  let made = value;
  for (let round = 0; round < 4; round += 1) {
    const shape = shapeOf(schema, root, made, depth);
    const missing = (shape.fields ?? []).filter((each) => each.required && !Object.hasOwn(made, each.name));
    if (missing.length === 0) {
      const free = (shape.schema.minProperties ?? 0) - Object.keys(made).length;
      for (let at = 0; at < Math.min(free, 50); at += 1) {
        made = withMember(made, `key${at + 1}`, example(shape.others ?? {}, root, depth + 1));
      }
      return made;
    }
    for (const each of missing) made = withMember(made, each.name, example(each.schema, root, depth + 1));
  }
  return made;
}

/** @param {Schema} schema */
function numberIn(schema) {
  const isWhole = schema.type === "integer";
  const step = schema.multipleOf ?? (isWhole ? 1 : 0.5);
  const { exclusiveMinimum: over, exclusiveMaximum: under } = schema; // in draft 4 these are booleans
  const least = isNumber(over) ? over.valueOf() + step : over === true ? schema.minimum + step : schema.minimum;
  const most = isNumber(under) ? under.valueOf() - step : under === true ? schema.maximum - step : schema.maximum;
  const value = least ?? Math.min(1, most ?? 1);
  const found = schema.multipleOf ? Math.ceil(value / step) * step : isWhole ? Math.ceil(value) : value;
  return least !== undefined && most !== undefined && found > most ? (least + most) / 2 : found;
}

/** @param {Schema} schema */
function textIn(schema) {
  const text = EXAMPLES[schema.format] ?? "text";
  const least = Math.min(schema.minLength ?? 0, 10_000);
  return text.padEnd(least, "x").slice(0, Math.max(schema.maxLength ?? Infinity, 0));
}

/** @param {any} value @param {number} at */
function varied(value, at) {
  if (at === 0) return value;
  if (typeof value === "string") return `${value}${at}`;
  return isNumber(value) ? value.valueOf() + at : value;
}

/**
 * Return which variant a value is of: the first that it fits; 0 for none.
 * @param {Schema[]} variants
 * @param {unknown} value
 * @param {Schema} root
 */
export function variantOf(variants, value, root) {
  if (value === undefined) return 0;
  return Math.max(0, variants.findIndex((each) => fits(each, value, root)));
}

/**
 * Return a short name for a variant.
 * @param {Schema} variant
 * @param {Schema} root
 * @param {number} at
 */
export function titleOf(variant, root, at) {
  const { schema, kind } = shapeOf(variant, root, undefined);
  if (schema.title) return String(schema.title);
  for (const [name, each] of Object.entries(schema.properties ?? {})) {
    if (isObject(each) && "const" in each) return `${name}: ${String(each.const)}`;
  }
  const reference = isObject(variant) ? (variant.$ref ?? variant.allOf?.at(-1)?.$ref) : undefined;
  if (typeof reference === "string") return decoded(reference.split("/").at(-1) ?? "");
  if (kind === "const") return stringify(schema.const);
  const type = [schema.type ?? kind].flat().join(" or ");
  const required = Array.isArray(schema.required) ? schema.required.slice(0, 2).join(", ") : "";
  return required ? `${type}: ${required}` : type === "variants" || type === "json" ? `${at + 1}` : type;
}

/**
 * Return what a field says about its limits, as names of sentences with their values.
 * @param {Schema} schema
 * @returns {[string, Record<string, string>][]}
 */
export function limitsOf(schema) {
  /** @type {[string, Record<string, string>][]} */
  const said = [];
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf, minLength, maxLength, pattern, format } = schema;
  range("limit", minimum, maximum);
  if (isNumber(exclusiveMinimum)) said.push(["limit.more", { n: `${exclusiveMinimum}` }]);
  if (isNumber(exclusiveMaximum)) said.push(["limit.less", { n: `${exclusiveMaximum}` }]);
  if (multipleOf !== undefined) said.push(["limit.multiple", { n: `${multipleOf}` }]);
  range("length", minLength || undefined, maxLength);
  if (pattern) said.push(["limit.pattern", { pattern: String(pattern) }]);
  if (format) said.push(["limit.format", { format: String(format) }]);
  return said;

  /** @param {string} of @param {number | undefined} least @param {number | undefined} most */
  function range(of, least, most) {
    const values = { least: `${least}`, most: `${most}` };
    if (least !== undefined && most !== undefined) said.push([`${of}.between`, values]);
    else if (least !== undefined) said.push([`${of}.least`, values]);
    else if (most !== undefined) said.push([`${of}.most`, values]);
  }
}

/** @param {any[]} choices */
export function areMany(choices) {
  return choices.length > MANY_CHOICES;
}

// Problems

/**
 * Return the place of a value as the server writes it: `items[1].quantity`.
 * @param {(string | number)[]} path
 */
export function placeOf(path) {
  return path.map((part, at) => (typeof part === "number" ? `[${part}]` : at ? `.${part}` : part)).join("");
}

/**
 * Return the problems by the place of their field; "" has those of the whole value.
 * @param {string[]} problems
 * @returns {Map<string, string[]>}
 */
export function byPlace(problems) {
  /** @type {Map<string, string[]>} */
  const found = new Map();
  for (const line of problems) {
    const missing = /^(?:([^\s:]+): )?missing required (?:argument|property) '(.+)'$/.exec(line);
    const placed = /^([^\s:]+): (.+)$/s.exec(line);
    const [place, text] = missing
      ? [missing[1] ? `${missing[1]}.${missing[2]}` : (missing[2] ?? ""), "required"]
      : placed
        ? [placed[1] ?? "", placed[2] ?? ""]
        : ["", line];
    found.set(place, [...(found.get(place) ?? []), text]);
  }
  return found;
}
