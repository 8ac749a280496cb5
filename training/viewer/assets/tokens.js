// The turns of one rollout: each token an element, sampled told from given, shaded by logprob or by advantage.
const UNLIKELY = 4;  // nats: from here on the shade is full
const shading = { by: "logprob" };

function turns(rollout) {
  const about = el("p", { class: "about", "aria-live": "polite" }, "Focus the tokens and use the arrow keys, or point at one.");
  const tokens = [];
  const parts = rollout.segments.map((segment, place) => turn(segment, place, rollout, tokens));
  const box = el("div", { class: `by-${shading.by} all-tokens`, tabindex: 0, role: "group",
    "aria-label": "Tokens; arrow keys step from one to the next" }, ...parts);
  let current = -1;
  const go = (place, scroll) => {
    if (tokens[current]) tokens[current].node.classList.remove("current");
    current = Math.max(0, Math.min(tokens.length - 1, place));
    tokens[current].node.classList.add("current");
    if (scroll) tokens[current].node.scrollIntoView({ block: "nearest" });
    about.textContent = `${current + 1} of ${tokens.length}: ${tokens[current].words()}`;
  };
  box.addEventListener("keydown", (event) => {
    const to = { ArrowRight: current + 1, ArrowLeft: current - 1, Home: 0, End: tokens.length - 1 }[event.key];
    if (to === undefined || !tokens.length || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();  // which also tells the page that the key is taken
    go(to, true);
  });
  box.addEventListener("pointerover", (event) => {
    const place = event.target.dataset.token;
    if (place !== undefined) go(Number(place), false);
  });
  return el("div", {}, about, box);
}

function turn(segment, place, rollout, tokens) {
  const sampled = segment.kind === "sampled";
  const words = sampled ? `sampled, ${segment.ids.length} tokens, policy version ${number(segment.version)}`
    : `given, ${segment.ids.length} tokens${place === 0 ? ": the prompt" : ""}`;
  const pieces = segment.pieces || [segment.text];
  const text = el("p", { class: "tokens" }, ...pieces.map((piece, at) => {
    const token = { piece, id: segment.pieces ? segment.ids[at] : null, sampled, version: segment.version,
      logprob: logprobAt(segment, at), advantage: rollout.advantage };
    return tokenElement(token, tokens);
  }));
  return el("section", { class: `turn ${sampled ? "sampled" : "given"}`, "aria-label": words }, el("h4", {}, words), text);
}

// A segment whose tokens have no texts of their own is shown whole, with the mean of its logprobs.
function logprobAt(segment, at) {
  if (!segment.logprobs || !segment.logprobs.length) return null;
  return segment.pieces ? segment.logprobs[at] : segment.logprobs.reduce((a, b) => a + b, 0) / segment.logprobs.length;
}

function tokenElement(token, tokens) {
  const node = el("span", { class: "token", "data-token": tokens.length },
    visible(token.piece).replaceAll("\n", "↵\n") || "·");
  token.node = node;
  token.words = () => tokenWords(token);
  tokens.push(token);
  shade(token);
  return node;
}

function shade(token) {
  if (!token.sampled) return;
  const advantage = token.advantage || 0;
  const weight = shading.by === "advantage" ? Math.abs(advantage) : -(token.logprob || 0) / UNLIKELY;
  token.node.style.setProperty("--weight", Math.max(0, Math.min(1, weight)).toFixed(2));
  token.node.classList.toggle("up", advantage > 0);
  token.node.classList.toggle("down", advantage < 0);
}

function tokenWords(token) {
  const known = [`${token.sampled ? "sampled" : "given"} ${visible(JSON.stringify(token.piece))}`];
  if (token.id !== null) known.push(`id ${token.id}`);
  if (token.logprob !== null) known.push(`logprob ${number(token.logprob)} (p ${number(Math.exp(token.logprob), 3)})`);
  if (token.sampled && token.advantage !== null && token.advantage !== undefined) known.push(`advantage ${number(token.advantage)}`);
  if (token.sampled) known.push(`version ${number(token.version)}`);
  return known.join(" · ");
}
