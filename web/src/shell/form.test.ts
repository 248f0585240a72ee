import { expect, it } from "vitest";
import { formValues, type Field } from "./dialog.svelte";

const field = (name: string, kind: Field["kind"], required = false): Field => ({ name, kind, label: name, value: "", required });

it("converts a form's texts to an action's body", () => {
  const fields = [field("topic", "text", true), field("partitions", "number"), field("replicas", "numbers"), field("unclean", "check"), field("key", "text")];
  const texts = new Map([["topic", "orders"], ["partitions", "3"], ["replicas", "1, 2 3"], ["unclean", "true"], ["key", ""]]);
  expect(formValues(fields, texts)).toEqual({ topic: "orders", partitions: 3, replicas: [1, 2, 3], unclean: true });
  expect(formValues([field("partitions", "number")], new Map())).toEqual({});
});
