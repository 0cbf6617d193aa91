// node --require loopback.cjs SERVER: the server listens on loopback only, at $AT_PORT or a free
// port. The first line of stdout is its address; it ends when its stdin does.
"use strict";

const { Server } = require("node:net");

console.log = console.error;
process.stdin.resume().on("end", () => process.exit());

const { listen } = Server.prototype;
Server.prototype.listen = function listenOnLoopback(_port, ...rest) {
  this.once("listening", () => {
    process.stdout.write(`http://127.0.0.1:${this.address().port}\n`);
  });
  return listen.call(this, Number(process.env.AT_PORT ?? 0), "127.0.0.1", ...rest);
};
