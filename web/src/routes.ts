/** All pages: one row each. A page gets its path parameters as `params`. */
import type { Component } from "svelte";
import Broker from "./pages/Broker.svelte";
import Brokers from "./pages/Brokers.svelte";
import Group from "./pages/Group.svelte";
import Groups from "./pages/Groups.svelte";
import Events from "./pages/Events.svelte";
import Losses from "./pages/Losses.svelte";
import Overview from "./pages/Overview.svelte";
import Partition from "./pages/Partition.svelte";
import Records from "./pages/Records.svelte";
import Topic from "./pages/Topic.svelte";
import Topics from "./pages/Topics.svelte";
import Transaction from "./pages/Transaction.svelte";
import Transactions from "./pages/Transactions.svelte";
import type { Params } from "./router/match";

export type Page = Component<{ params: Params }>;

export interface Route {
  readonly pattern: string;
  /** The entry of the navigation that is marked while the page is open. */
  readonly section: string;
  /** The page, or how to load it when it is first opened. */
  readonly page: Page | { readonly load: () => Promise<{ default: Page }> };
}

export const ROUTES: readonly Route[] = [
  { pattern: "/", section: "/", page: Overview },
  { pattern: "/topics", section: "/topics", page: Topics },
  { pattern: "/topics/:topic", section: "/topics", page: Topic },
  { pattern: "/topics/:topic/:partition", section: "/topics", page: Partition },
  { pattern: "/topics/:topic/:partition/records", section: "/topics", page: Records },
  { pattern: "/brokers", section: "/brokers", page: Brokers },
  { pattern: "/brokers/:broker", section: "/brokers", page: Broker },
  { pattern: "/groups", section: "/groups", page: Groups },
  { pattern: "/groups/:group", section: "/groups", page: Group },
  { pattern: "/transactions", section: "/transactions", page: Transactions },
  { pattern: "/transactions/:id", section: "/transactions", page: Transaction },
  { pattern: "/events", section: "/events", page: Events },
  { pattern: "/losses", section: "/losses", page: Losses },
  { pattern: "/compare", section: "/compare", page: { load: () => import("./pages/Compare.svelte") } },
  { pattern: "/stories", section: "/stories", page: { load: () => import("./stories/Stories.svelte") } },
  { pattern: "/stories/:folder/:name", section: "/stories", page: { load: () => import("./stories/Story.svelte") } },
  { pattern: "/lessons", section: "/lessons", page: { load: () => import("./stories/Lessons.svelte") } },
  { pattern: "/lessons/:number", section: "/lessons", page: { load: () => import("./stories/Lesson.svelte") } },
];

/** The navigation: address, text, and the key that opens it after `g`. */
export const SECTIONS: readonly { href: string; text: string; key: string }[] = [
  { href: "/", text: "Overview", key: "o" },
  { href: "/topics", text: "Topics", key: "t" },
  { href: "/brokers", text: "Brokers", key: "b" },
  { href: "/groups", text: "Groups", key: "u" },
  { href: "/transactions", text: "Transactions", key: "n" },
  { href: "/events", text: "Events", key: "e" },
  { href: "/losses", text: "Losses", key: "x" },
  { href: "/compare", text: "Compare", key: "c" },
  { href: "/stories", text: "Stories", key: "s" },
  { href: "/lessons", text: "Lessons", key: "l" },
];
