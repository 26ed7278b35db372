"""Requests one URL a number of times over one connection: load.py URL COUNT CERTIFICATE.

Prints a line of JSON for each object; times are milliseconds since the start of the program.
"""

import http.client
import json
import ssl
import sys
import time
import urllib.parse

START = time.monotonic()


def milliseconds():
    return (time.monotonic() - START) * 1e3


def main():
    url = urllib.parse.urlsplit(sys.argv[1])
    if url.scheme == "https":
        context = ssl.create_default_context(cafile=sys.argv[3])
        connection = http.client.HTTPSConnection(url.hostname, url.port, context=context)
    else:
        connection = http.client.HTTPConnection(url.hostname, url.port)
    connection.connect()
    for _ in range(int(sys.argv[2])):
        line = {"start_ms": milliseconds()}
        connection.request("GET", url.path)
        response = connection.getresponse()
        line["head_ms"] = milliseconds()
        line["bytes"] = len(response.read())
        line["end_ms"] = milliseconds()
        if response.status != 200:
            line["error"] = f"status {response.status}"
        print(json.dumps(line), flush=True)


main()
