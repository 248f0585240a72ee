/** One dialog for all actions: what is asked, and short messages about what was done. */
import { type ClusterPrefix, failureFrom, inOneLine, postAction } from "../api/http";

/** A field of an action's form. */
export interface Field {
  readonly name: string;
  readonly label: string;
  readonly kind: "text" | "number" | "area" | "select" | "check" | "numbers";
  readonly value: string;
  readonly options?: readonly { readonly value: string; readonly text: string }[];
  readonly hint?: string;
  readonly required?: boolean;
  readonly pattern?: string;
}

/** An action that a person confirms. */
export interface Question {
  readonly action: string;
  readonly cluster?: ClusterPrefix;
  readonly title: string;
  /** What will happen, in one or two sentences. */
  readonly text: string;
  readonly confirm: string;
  readonly danger?: boolean;
  /** Values that are not asked for. */
  readonly body?: Readonly<Record<string, unknown>>;
  readonly fields?: readonly Field[];
}

export interface Toast {
  readonly id: number;
  readonly kind: "ok" | "bad";
  readonly text: string;
}

const TOAST_MS = 6_000;

class Dialogs {
  question = $state.raw<Question | null>(null);
  toasts = $state.raw<readonly Toast[]>([]);
  busy = $state(false);
  error = $state<string | null>(null);
  #next = 0;

  ask(question: Question): void {
    this.error = null;
    this.question = question;
  }

  close(): void {
    this.question = null;
  }

  /** Carry out the question's action with the form's values. */
  async confirm(values: Readonly<Record<string, unknown>>): Promise<void> {
    const question = this.question;
    if (question === null || this.busy) return;
    this.busy = true;
    this.error = null;
    try {
      const text = await postAction(question.action, { ...question.body, ...values }, question.cluster);
      this.question = null;
      this.say("ok", text);
    } catch (error) {
      this.error = inOneLine(failureFrom(error));
    } finally {
      this.busy = false;
    }
  }

  say(kind: "ok" | "bad", text: string): void {
    const toast = { id: this.#next++, kind, text };
    this.toasts = [...this.toasts.slice(-2), toast];
    setTimeout(() => (this.toasts = this.toasts.filter((each) => each.id !== toast.id)), TOAST_MS);
  }
}

export const dialogs = new Dialogs();

/** Convert a form's texts to the values of an action's body. */
export function formValues(fields: readonly Field[], texts: ReadonlyMap<string, string>): Record<string, unknown> {
  const values: Record<string, unknown> = {};
  for (const field of fields) {
    const text = texts.get(field.name) ?? "";
    if (field.kind === "check") values[field.name] = text === "true";
    else if (field.kind === "numbers") values[field.name] = text.split(/[\s,]+/).filter(Boolean).map(Number);
    else if (field.kind === "number") {
      if (text.trim() !== "") values[field.name] = Number(text);
    } else if (text !== "" || field.required) values[field.name] = text;
  }
  return values;
}
