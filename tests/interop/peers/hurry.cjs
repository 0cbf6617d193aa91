// node --require hurry.cjs SERVER: what takes the server a second takes it a fiftieth of that.
"use strict";

const { setTimeout: later } = globalThis;
globalThis.setTimeout = (run, time, ...rest) => later(run, time === 1000 ? 20 : time, ...rest);
