/** The problems of the overview; many of one topic become one line. */
import type { Overview, Problem, ProblemKind } from "../api/types";
import { count } from "../format";
import { path } from "../router/match";

export interface ProblemLine {
  readonly key: string;
  readonly kind: ProblemKind;
  readonly name: string;
  readonly href: string;
  readonly text: string;
}

const SINGLE_MAX = 5;

export function groupProblems(overview: Overview): ProblemLine[] {
  const groups = new Map<string, Problem[]>();
  for (const problem of overview.problems) {
    const key = `${problem.kind} ${problem.topic}`;
    groups.set(key, [...(groups.get(key) ?? []), problem]);
  }
  return [...groups].flatMap(([key, found]): ProblemLine[] => {
    const first = found[0];
    if (first === undefined) return [];
    if (found.length <= SINGLE_MAX) {
      return found.map((each, n) => ({
        key: `${key} ${each.partition} ${n}`,
        kind: each.kind,
        name: `${each.topic}/${each.partition}`,
        href: path("topics", each.topic, each.partition),
        text: each.text,
      }));
    }
    // The backend lists only the first problems; the topic's row has the counts.
    const row = overview.topics.find((topic) => topic.topic === first.topic);
    const known = first.kind === "offline" ? row?.offline : first.kind === "under_replicated" ? row?.under_replicated : undefined;
    const text = count(Math.max(found.length, known ?? 0), "partition");
    return [{ key, kind: first.kind, name: first.topic, href: path("topics", first.topic), text }];
  });
}
