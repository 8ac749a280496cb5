// One rollout's page: what was asked, what it earned and why, the turns, and each call beside its result.
function rolloutArticle(row, rollout) {
  const run = RUNS[row.run];
  const heading = el("h2", { tabindex: -1 }, COMPARING ? el("span", { class: `name-${row.run}` }, `${visible(run.name)}: `) : null, visible(row.key));
  const article = el("article", { "aria-label": `${visible(run.name)} ${visible(row.key)}` }, heading);
  if (rollout === null) {
    article.append(el("p", {}, `This file holds ${Object.keys(run.rollouts).length} of ${run.rows.length} rollouts in full, and this is not one of them. `,
      el("code", {}, `callwright view ${visible(run.name)}`), " opens every one."), rowFacts(row));
    return article;
  }
  article.append(rewardFacts(row, rollout), ...refusals(rollout),
    el("h3", {}, "Turns"), ...(run.why_none ? [el("p", { class: "hint" }, `Each part is shaded as a whole: ${visible(run.why_none)}.`)] : []),
    turns(rollout), calls(rollout));
  return article;
}

const rowFacts = (row) => facts([["source", `${visible(row.file)}, line ${row.line}`], ["outcome", visible(row.outcome)], ["reward", number(row.reward)]]);

function rewardFacts(row, rollout) {
  const parts = Object.entries((rollout.reward || {}).parts || {}).map(([name, value]) => `${visible(name)} ${number(value)}`);
  const total = rollout.reward ? `${number(rollout.reward.total)} = ${parts.join(" + ")}` : "none";
  const optional = [["question", rollout.question], ["right answer", rollout.answer], ["its answer", rollout.solution],
    ["cause", rollout.cause]].filter(([, value]) => value !== undefined && value !== null && value !== "");
  return facts([
    ["where", `${visible(row.file)}, line ${row.line}` + (row.step === null ? "" : `; step ${row.step}, sample ${number(row.sample)}`)],
    ["outcome", visible(rollout.outcome)],
    ["reward", total],
    ["why", why(rollout)],
    ["advantage", number(rollout.advantage)],
    ...optional.map(([name, value]) => [name, visible(value)]),
    ["seconds", `${number(rollout.seconds, 3)}, of them in tools ${number(rollout.tool_seconds, 3)}`],
  ]);
}

function why(rollout) {
  const reasons = [];
  if (rollout.success === true) reasons.push("the answer is right");
  else if (rollout.solution === null || rollout.solution === undefined) reasons.push("there is no answer");
  else reasons.push("the answer is wrong");
  const refused = (rollout.rejections || []).length, broken = rollout.violations || 0;
  reasons.push(refused ? `${refused} refused call${refused > 1 ? "s" : ""}` : "no call was refused");
  reasons.push(broken ? `${broken} broken rule${broken > 1 ? "s" : ""} of the dialect` : "no rule was broken");
  return reasons.join("; ");
}

function refusals(rollout) {
  const rejections = rollout.rejections || [];
  if (!rejections.length) return [];
  return [el("div", { class: "wide" }, table("refused calls", ["Code", "Tool", "At", "Why", "Text"], rejections.map((one) =>
    [visible(one.code), visible(one.tool ?? "–"), number(one.offset), visible(one.message ?? ""), el("pre", { tabindex: 0, "aria-label": "text" }, visible(one.raw ?? ""))])))];
}

function calls(rollout) {
  const made = rollout.calls || [];
  if (!made.length) return el("p", { class: "soft" }, "No tool was called.");
  const rows = made.map((call, place) => [
    el("div", {}, el("strong", {}, `${place + 1}. ${visible(call.tool)}`), ` ${visible(call.status)}, ${number(call.seconds, 3)} s`,
      el("pre", { tabindex: 0, "aria-label": "arguments" }, visible(JSON.stringify(call.arguments, null, 2)))),
    el("pre", { tabindex: 0, "aria-label": "result" }, visible(call.cause ? `${call.cause}\n` : "") + pretty(call.record)),
  ]);
  return table("calls beside their results", ["Call", "Result"], rows, { class: "calls" });
}

function pretty(record) {
  if (record === null || record === undefined) return "no record";
  try {
    return visible(JSON.stringify(JSON.parse(record), null, 2));
  } catch {
    return visible(record);  // not JSON: as it came
  }
}
