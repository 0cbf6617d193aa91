// Unpack the browser of @sparticuz/chromium, its libraries and fonts into a folder.
//
//     node unpack.mjs build/browser

import { execFileSync } from "node:child_process";
import { chmodSync, createReadStream, createWriteStream, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { createBrotliDecompress } from "node:zlib";

// The one in the package names folders of AWS Lambda; without these the pages show no text.
const FONTS = `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir prefix="relative">fonts</dir>
  <dir>/usr/share/fonts</dir>
</fontconfig>
`;

const folder = process.argv[2];
const packed = join(folder, "node_modules/@sparticuz/chromium/bin");

async function decompress(name, target) {
  const source = createReadStream(join(packed, name));
  await pipeline(source, createBrotliDecompress(), createWriteStream(target));
}

async function untar(name) {
  const tar = join(folder, name.replace(".br", ""));
  await decompress(name, tar);
  execFileSync("tar", ["-xf", tar, "-C", folder]);
  rmSync(tar);
}

await Promise.all([
  decompress("chromium.br", join(folder, "chromium")),
  untar("al2023.tar.br"),
  untar("fonts.tar.br"),
]);
chmodSync(join(folder, "chromium"), 0o755);
writeFileSync(join(folder, "fonts.conf"), FONTS);
