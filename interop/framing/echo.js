// Reports each request as Node's http parsed it in the response field x-seen: cleartext HTTP/1.1.
"use strict";
const http = require("http");
const crypto = require("crypto");

const server = http.createServer((request, response) => {
  const digest = crypto.createHash("sha256");
  let length = 0;
  request.on("data", (piece) => {
    length += piece.length;
    digest.update(piece);
  });
  request.on("error", () => request.socket.destroy());
  request.on("end", () => {
    const seen = `${request.method} ${request.url} ${length} ${digest.digest("hex").slice(0, 16)}`;
    response.setHeader("x-seen", Buffer.from(seen, "latin1").toString("latin1"));
    response.end(`seen ${seen}\n`);
  });
});
server.keepAliveTimeout = 0;
server.requestTimeout = 0;
server.headersTimeout = 0;
server.listen(0, "127.0.0.1", () => console.log(`listening on http://127.0.0.1:${server.address().port}`));
