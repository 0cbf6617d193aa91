// An authorization server for the tests: `oidc-provider`, set up as MCP wants one, on loopback.
// NODE_PATH has its packages. The first line of stdout is the issuer; it ends when its stdin does.
//
// POST /test changes what it does: a JSON object with members of `wishes`, or {"revoke": true}.
// GET /test tells what it has done, in numbers. Who logs in is whoever they say, with any password.
"use strict";

console.log = console.error;
console.info = console.error;

const { generateKeyPairSync } = require("node:crypto");
const { createServer } = require("node:http");
const { json } = require("node:stream/consumers");
const { Provider, errors } = require("oidc-provider");

const SCOPES = "notes:read notes:write";
const WISHES = {
  resource: "", // the only one that there are tokens for
  seconds: 3600, // for which access tokens are good
  expired: 0, // how many of the next access tokens have expired already, though they are new
  rotates: true, // a refresh token is good once
  groups: {}, // of people, by name
  documents: {}, // client metadata documents by their URL, as if they were on the web
};
const wishes = { ...WISHES };
const done = {}; // how often
const grants = new Set();

function count(what) {
  done[what] = (done[what] ?? 0) + 1;
}

const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, configuration());
  const answer = provider.callback();
  provider.on("grant.saved", (grant) => grants.add(grant.jti));
  provider.on("registration_create.success", () => count("registrations"));
  provider.on("authorization.success", () => count("authorizations"));
  provider.on("grant.success", (ctx) => count(ctx.oidc.params.grant_type));
  provider.on("grant.error", (_, error) => count(error.error));
  provider.on("server_error", (_, error) => console.error(error));
  server.on("request", (request, response) => {
    if (request.url === "/test") {
      obey(provider, request, response);
    } else {
      answer(request, response);
    }
  });
  process.stdout.write(`${issuer}\n`);
});
process.stdin.resume().on("end", () => process.exit());

async function obey(provider, request, response) {
  if (request.method === "POST") {
    const { revoke, reset, ...others } = await json(request);
    if (reset) {
      Object.assign(wishes, WISHES);
      Object.keys(done).forEach((what) => delete done[what]);
    }
    if (revoke || reset) {
      for (const grant of grants) {
        await provider.RefreshToken.revokeByGrantId(grant);
        await provider.Grant.adapter.destroy(grant);
      }
      grants.clear();
    }
    Object.assign(wishes, others);
  }
  response.setHeader("content-type", "application/json").end(JSON.stringify(done));
}

function configuration() {
  return {
    jwks: { keys: [key("rsa", { modulusLength: 2048 }), key("ec", { namedCurve: "P-256" })] },
    scopes: ["openid", "offline_access", ...SCOPES.split(" ")],
    claims: { openid: ["sub"], groups: ["groups"] },
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({ sub: id, groups: wishes.groups[id] ?? [] }),
    }),
    responseTypes: ["code"],
    features: {
      registration: { enabled: true },
      clientIdMetadataDocument: { enabled: true, ack: "draft-02" },
      clientCredentials: { enabled: true },
      revocation: { enabled: true },
      userinfo: { enabled: true },
      dPoP: { enabled: false },
      rpInitiatedLogout: { enabled: false },
      resourceIndicators: { enabled: true, getResourceServerInfo: resourceServer },
    },
    pkce: { required: () => true },
    issueRefreshToken: (_, client) => client.grantTypeAllowed("refresh_token"),
    expiresWithSession: () => false,
    rotateRefreshToken: () => wishes.rotates,
    formats: { customizers: { jwt: expire } },
    fetch: fetchDocument,
    cookies: { keys: ["no secret"] },
  };
}

function key(type, options) {
  const { privateKey } = generateKeyPairSync(type, options);
  const alg = type === "ec" ? "ES256" : "RS256";
  return { ...privateKey.export({ format: "jwk" }), kid: alg, alg, use: "sig" };
}

function resourceServer(_, resource) {
  if (resource !== wishes.resource) {
    throw new errors.InvalidTarget();
  }
  return {
    scope: SCOPES,
    audience: resource,
    accessTokenTTL: wishes.seconds,
    accessTokenFormat: "jwt",
    jwt: { sign: { alg: "ES256" } },
  };
}

function expire(_, token, { payload }) {
  if (wishes.expired > 0) {
    wishes.expired -= 1;
    payload.iat -= 7200;
    payload.exp = payload.iat + 3600;
  }
}

async function fetchDocument(url) {
  const document = wishes.documents[url];
  return new Response(JSON.stringify(document ?? null), { status: document ? 200 : 404 });
}
