// Server-sent events over fetch: unlike EventSource it reports why it was refused, and can be closed for good.
//
//   const stream = new Stream(() => address("events"), { event(kind, data) {…}, broken(error) {…} });
//   stream.open(); stream.close();
//
// After a break it reconnects: at once, then after 1, 2, 4 … 15 seconds, with jitter, so that a thousand viewers do not
// reconnect to a restarted operator at the same instant. After 401 or 403 it retries once a minute.

import { ApiError, answer } from "./api.js";

const LONGEST = 15_000;
const REFUSED = 60_000; // a refused client stays refused; logging in reloads the page
const SILENCE = 90_000; // without data for that long the connection is considered dead

export class Stream {
  #where;
  #on;
  #request = null; // the AbortController of the request that runs
  #again = 0; // the timer of the next try
  #silence = 0;
  #tries = 0;

  constructor(where, on) {
    this.#where = where;
    this.#on = on;
  }

  open() {
    this.close();
    this.#tries = 0;
    this.#try();
  }

  close() {
    clearTimeout(this.#again);
    clearTimeout(this.#silence);
    this.#request?.abort();
    this.#request = null;
  }

  async #try() {
    const request = new AbortController();
    this.#request = request;
    let problem = new ApiError("The connection ended.");
    try {
      const response = await answer(this.#where(), { signal: request.signal, headers: { Accept: "text/event-stream" } });
      this.#restartSilenceTimer(request);
      await this.#read(response.body, request);
    } catch (error) {
      if (error.name === "ApiError") problem = error;
    }
    if (this.#request !== request) return; // closed or reopened meanwhile
    clearTimeout(this.#silence);
    const again = this.#tries === 0 ? 0 : Math.min(LONGEST, 1000 * 2 ** (this.#tries - 1));
    const pause = problem.status === 401 || problem.status === 403 ? REFUSED : again;
    this.#tries += 1;
    this.#again = setTimeout(() => this.#try(), pause * (0.75 + Math.random() / 2) + 50);
    this.#on.broken(problem); // last, as it may close or open it
  }

  async #read(body, request) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new Parser((kind, data) => {
      this.#tries = 0;
      this.#on.event(kind, data);
    });
    for (;;) {
      const { done, value } = await reader.read();
      if (done || this.#request !== request) return;
      this.#restartSilenceTimer(request);
      parser.take(value);
    }
  }

  #restartSilenceTimer(request) {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => request.abort(), SILENCE);
  }
}

// Parses server-sent events: a field per line, an empty line ends an event.
export class Parser {
  #rest = "";
  #kind = "";
  #data = [];
  #onEvent;

  constructor(onEvent) {
    this.#onEvent = onEvent;
  }

  take(text) {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop();
    for (const line of lines) this.#line(line.endsWith("\r") ? line.slice(0, -1) : line);
  }

  #line(line) {
    if (line === "") return this.#end();
    const [, field, value] = /^([^:]*)(?:: ?(.*))?$/s.exec(line);
    if (field === "event") this.#kind = value ?? "";
    else if (field === "data") this.#data.push(value ?? "");
  }

  #end() {
    const kind = this.#kind || "message";
    const data = this.#data.join("\n");
    this.#kind = "";
    this.#data = [];
    if (data) this.#onEvent(kind, JSON.parse(data));
  }
}
