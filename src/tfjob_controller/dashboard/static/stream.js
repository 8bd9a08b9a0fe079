// Streams of server-sent events, and the line that says whether what is shown is of now.

const banner = () => document.getElementById("connection");
const LOST = "The connection to the dashboard is lost. It is opened again as soon as possible.";
export const say = (text) => { const each = banner(); if (each && each.textContent !== text) each.textContent = text; };
export const lost = () => say(LOST);
export const found = () => say("");

// A browser opens six connections to one host for all of its tabs. A page that has been hidden for so long therefore
// gives its own back, and gets the current state when it is shown again.
const HIDDEN_MS = 30000;

// The part of EventSource's interface that htmx and the log use.
export class Stream {
  constructor(url) {
    this.url = url;
    this.listeners = [];
    this.source = null;
    this.watch = () => {
      clearTimeout(this.timer);
      if (document.hidden) this.timer = setTimeout(() => this.pause(), HIDDEN_MS);
      else this.resume();
    };
    document.addEventListener("visibilitychange", this.watch);
    this.watch();
  }
  get readyState() { return this.source ? this.source.readyState : EventSource.CONNECTING; }
  addEventListener(type, listener) {
    this.listeners.push([type, listener]);
    if (this.source) this.source.addEventListener(type, listener);
  }
  removeEventListener(type, listener) {
    this.listeners = this.listeners.filter(([each, other]) => each !== type || other !== listener);
    if (this.source) this.source.removeEventListener(type, listener);
  }
  resume() {
    if (this.source) return;
    this.source = new EventSource(this.url);
    this.source.onopen = (event) => { if (this.onopen) this.onopen(event); };
    this.source.onerror = (event) => { if (this.onerror) this.onerror(event); };
    for (const [type, listener] of this.listeners) this.source.addEventListener(type, listener);
  }
  pause() {
    // One that has failed for good stays so: htmx has replaced it by another one.
    if (!this.source || this.source.readyState === EventSource.CLOSED) return;
    this.source.close();
    this.source = null;
  }
  close() {
    document.removeEventListener("visibilitychange", this.watch);
    clearTimeout(this.timer);
    if (this.source) this.source.close();
  }
}
