// Pages that are opened from files may start no workers; the search of the site is one. Here a frame
// does a worker's work: it runs the same script, and messages go to and fro.
"use strict";
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.document.open();
      this.inside.document.write(`<!doctype html><script>
        var postMessage = (data) => parent.postMessage(data, "*");
        var importScripts = (...addresses) => addresses.reduce((before, address) => before.then(() =>
          new Promise((done, failed) => {
            const script = document.createElement("script");
            Object.assign(script, { src: address, onload: done, onerror: failed });
            document.body.append(script);
          })), Promise.resolve());
        <\/script><body><script src="${address}"><\/script>`);
      this.inside.document.close();
      this.loaded = new Promise((done) => frame.addEventListener("load", done, { once: true }));
      addEventListener("message", (event) => {
        if (event.source === this.inside) this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      });
    }

    async postMessage(data) {
      await this.loaded;
      this.inside.dispatchEvent(new MessageEvent("message", { data, source: window }));
    }
  };
}
