"""Test data: certificates made by openssl, and files of known hashes."""

import hashlib
import os
import random
import subprocess

SIZES = {"empty": 0, "one": 1, "1k": 1024, "10k": 10_240, "64k+1": 65_537, "1m": 1 << 20, "50m": 50_000_000}
OBJECTS = 200


class Certificate:
    """A new certificate authority in `folder`, and its certificate for `names`."""

    def __init__(self, folder, names="DNS:localhost,IP:127.0.0.1"):
        os.makedirs(folder, exist_ok=True)
        path = lambda name: os.path.join(folder, name)
        self.ca, self.cert, self.key = path("ca.pem"), path("cert.pem"), path("key.pem")
        with open(path("leaf.cnf"), "w", encoding="ascii") as f:
            f.write(f"subjectAltName={names}\nbasicConstraints=critical,CA:FALSE\n"
                    "extendedKeyUsage=serverAuth\n")
        ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        openssl("req", "-x509", *ec, "-keyout", path("ca-key.pem"), "-out", self.ca, "-days", "30",
                "-subj", "/CN=smig interop CA", "-addext", "basicConstraints=critical,CA:TRUE",
                "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        openssl("req", *ec, "-keyout", self.key, "-out", path("leaf.csr"), "-subj", "/CN=localhost")
        openssl("x509", "-req", "-in", path("leaf.csr"), "-CA", self.ca, "-CAkey", path("ca-key.pem"),
                "-CAcreateserial", "-days", "30", "-extfile", path("leaf.cnf"), "-out", path("leaf.pem"))
        # The chain in the order that most servers require: the leaf first.
        with open(self.cert, "wb") as out:
            for part in (path("leaf.pem"), self.ca):
                with open(part, "rb") as f:
                    out.write(f.read())

    def key_hash(self):
        """The hash of the public key, as Chromium's --ignore-certificate-errors-spki-list takes it."""
        public = openssl("x509", "-in", self.cert, "-noout", "-pubkey")
        der = openssl("pkey", "-pubin", "-outform", "der", stdin=public)
        digest = openssl("dgst", "-sha256", "-binary", stdin=der)
        return openssl("base64", stdin=digest).decode().strip()


def openssl(*args, stdin=b""):
    done = subprocess.run(["openssl", *args], input=stdin, capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {args[0]}: {done.stderr.decode(errors='replace')}")
    return done.stdout


def write_file(path, size, seed):
    """Writes `size` incompressible bytes to a file; returns its SHA-256."""
    source, digest, left = random.Random(seed), hashlib.sha256(), size
    with open(path, "wb") as f:
        while left > 0:
            piece = source.randbytes(min(left, 1 << 20))
            f.write(piece)
            digest.update(piece)
            left -= len(piece)
    return digest.hexdigest()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def sha256_of_file(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while piece := f.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


class Content:
    """A directory to serve: one file of each size (`hashes` by name), and a page of 200 objects for a browser."""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(os.path.join(folder, "objects"), exist_ok=True)
        self.hashes = {
            name: write_file(os.path.join(folder, name), size, seed=name) for name, size in SIZES.items()
        }
        objects = [
            write_file(os.path.join(folder, "objects", f"{number}.bin"), 100 + 977 * number % 20_000, seed=number)
            for number in range(OBJECTS)
        ]
        with open(os.path.join(folder, "index.html"), "w", encoding="ascii") as f:
            f.write(PAGE.replace("HASHES", str(objects)))
        self.hashes["index.html"] = sha256_of_file(os.path.join(folder, "index.html"))


# Checks every hash in the browser, and counts the objects that arrived over HTTP/2.
PAGE = """<!doctype html>
<meta charset="utf-8">
<title>waiting</title>
<p id="result">waiting</p>
<script>
const hashes = HASHES;
async function load(number) {
  const response = await fetch(`objects/${number}.bin`, {cache: "no-store"});
  const body = await response.arrayBuffer();
  if (response.status !== 200) throw new Error(`${number}: status ${response.status}`);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", body));
  const hash = [...digest].map(byte => byte.toString(16).padStart(2, "0")).join("");
  if (hash !== hashes[number]) throw new Error(`${number}: ${body.byteLength} bytes with the wrong hash`);
}
performance.setResourceTimingBufferSize(1000);
Promise.allSettled(hashes.map((_, number) => load(number))).then(results => {
  const failed = results.filter(r => r.status === "rejected").map(r => r.reason.message);
  const h2 = performance.getEntriesByType("resource").filter(e => e.nextHopProtocol === "h2").length;
  const loaded = results.length - failed.length;
  document.getElementById("result").textContent =
    `loaded=${loaded} h2=${h2} failed=${failed.length} ${failed.slice(0, 3).join("; ")}`;
  document.title = "done";
});
</script>
"""
