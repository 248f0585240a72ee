/** Parse Server-Sent Events from chunks of text. Comments count as signs of life only. */

export interface Message {
  readonly event: string;
  readonly data: string;
}

export class EventParser {
  #rest = "";

  /** Add a chunk; return the messages that it completes. */
  push(chunk: string): Message[] {
    const blocks = (this.#rest + chunk).replaceAll("\r\n", "\n").split("\n\n");
    this.#rest = blocks.pop() ?? "";
    return blocks.map(parseBlock).filter((message) => message !== null);
  }
}

function parseBlock(block: string): Message | null {
  let event = "message";
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue; // a comment or an empty line
    const value = line.slice(colon + 1).replace(/^ /, "");
    const field = line.slice(0, colon);
    if (field === "event") event = value;
    else if (field === "data") data.push(value);
  }
  return data.length === 0 ? null : { event, data: data.join("\n") };
}
