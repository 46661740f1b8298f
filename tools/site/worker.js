// Browsers start no worker for a page that was opened as a file. The search then runs in a hidden frame with a worker's interface.
if (location.protocol === "file:")
  window.Worker = class {
    constructor(address) {
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      const event = (data) => new MessageEvent("message", { data: structuredClone(data) })
      inside.postMessage = (data) => setTimeout(() => this.onmessage?.(event(data)))
      this.postMessage = (data) =>
        this.ready.then(() => setTimeout(() => this.frame.contentWindow?.dispatchEvent(event(data))))
      inside.importScripts = (...names) =>
        names.reduce((before, name) => before.then(() => load(name)), Promise.resolve())
      const load = (name) =>
        new Promise((done, failed) => {
          const script = inside.document.createElement("script")
          Object.assign(script, { src: name, onload: done, onerror: failed })
          inside.document.body.append(script)
        })
      this.ready = load(new URL(address, location.href).href)
    }
    terminate() {
      this.frame.remove()
    }
  }
