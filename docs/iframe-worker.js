// Search of the documentation site, opened from a disk: browsers start no workers there, so a hidden
// frame stands in for one. Material for MkDocs would fetch a script for this from the net.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = new Promise((resolve) => {
        const script = this.inside.document.createElement("script");
        script.src = new URL(url, location.href);
        script.onload = resolve;
        this.inside.document.documentElement.append(script);
      });
    }
    postMessage(data) {
      const message = new this.inside.MessageEvent("message", { data });
      this.ready.then(() => this.inside.dispatchEvent(message));
    }
    terminate() {}
  };
}
