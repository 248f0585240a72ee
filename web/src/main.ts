import { mount } from "svelte";
import App from "./App.svelte";
import "./tokens.css";
import "./app.css";
import "./drawing/drawing.css";

const target = document.getElementById("app");
if (target !== null) mount(App, { target });
