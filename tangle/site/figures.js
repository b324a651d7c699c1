// Live figures. A page that has one loads this; without it, and until something better is known, the figure shows its
// recorded state, which is in the page as a table. What a figure asks, it asks the origin that the page came from.
(() => {
  'use strict';
  const make = (tag, given = {}, ...inside) => {
    const node = tag === 'svg' || given.in === 'svg' ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
    for (const [key, value] of Object.entries(given)) {
      if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
      else if (key !== 'in') node.setAttribute(key, value);
    }
    node.append(...inside);
    return node;
  };
  let made = 0;
  const field = (words, control) => {
    control.id = `live-${++made}`;
    return make('p', { class: 'field' }, make('label', { for: control.id }, words), control);
  };
  const choice = (options, chosen, change) => {
    const list = make('select', { onchange: change });
    for (const [value, words] of options) list.append(make('option', { value, ...(value === chosen ? { selected: '' } : {}) }, words));
    return list;
  };

  // A kind of figure: given its element, its recorded state, and say(), which tells the reader what is shown.
  const kinds = {};

  // The tokenizer. Recorded: samples that `rose tokenize` cut. Live: POST /tokenize {"prompt", "add_special_tokens": false,
  // "return_token_strs": true} answers {"tokens": [ids], "token_strs": [spellings]}, each spelling in GPT-2's printable bytes.
  const unspell = (() => {
    const byte = new Map();
    let next = 256;
    for (let b = 0; b < 256; ++b) {
      const printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      byte.set(String.fromCharCode(printable ? b : next++), b);
    }
    return (spelling) => {
      const bytes = [...spelling].map((c) => byte.get(c));
      return bytes.includes(undefined) ? [...new TextEncoder().encode(spelling)] : bytes;
    };
  })();
  const hex = (bytes) => bytes.map((b) => b.toString(16).padStart(2, '0')).join(' ');
  const words = (bytes) => {
    try {
      return new TextDecoder('utf-8', { fatal: true }).decode(new Uint8Array(bytes)).replace(/ /g, '·').replace(/\n/g, '\\n').replace(/\t/g, '\\t');
    } catch {
      return null;  // a part of a character
    }
  };
  kinds.tokenizer = (panel, state, say) => {
    const list = make('ol', { class: 'tokens', tabindex: '0', 'aria-label': 'Tokens' }), sum = make('p', { class: 'sum' });
    const show = (tokens) => {
      list.replaceChildren(...tokens.map(([id, bytes]) => {
        const text = words(bytes);
        return make('li', text === null ? { class: 'part' } : {}, make('span', {}, text === null ? '…' : text), make('small', {}, String(id)), make('small', { class: 'bytes' }, hex(bytes)));
      }));
      const count = tokens.reduce((all, [, bytes]) => all + bytes.length, 0);
      sum.textContent = `${tokens.length} tokens for ${count} bytes: ${(count / Math.max(tokens.length, 1)).toFixed(2)} bytes a token`;
    };
    const recorded = (index) => {
      const [text, tokens] = state.samples[index];
      input.value = text;
      show(tokens.map(([id, bytes]) => [id, bytes.match(/../g).map((two) => parseInt(two, 16))]));
      say('recorded', `${state.model}, on ${state.recorded}. Change the text to ask the engine, if one serves this page.`);
    };
    let asked = 0;
    const ask = async () => {
      const mine = ++asked, prompt = input.value;
      try {
        const answer = await fetch('/tokenize', {
          method: 'POST', headers: { 'content-type': 'application/json' },
          body: JSON.stringify({ prompt, add_special_tokens: false, return_token_strs: true }),
        });
        if (!answer.ok) throw new Error(String(answer.status));
        const { tokens, token_strs: spelt } = await answer.json();
        if (mine !== asked) return;
        show(tokens.map((id, i) => [id, spelt ? unspell(spelt[i]) : []]));
        say('live', 'Cut by the engine that serves this page.');
      } catch {
        if (mine !== asked) return;
        const same = state.samples.findIndex(([text]) => text === prompt);
        if (same >= 0) return recorded(same);
        list.replaceChildren();
        sum.textContent = '';
        say('recorded', 'No engine serves this page, so only the samples can be shown: choose one.');
      }
    };
    let pause = 0;
    const input = make('textarea', { rows: '3', spellcheck: 'false', dir: 'auto', oninput: () => { clearTimeout(pause); pause = setTimeout(ask, 200); } });
    const samples = choice(state.samples.map((sample, i) => [String(i), sample[2]]), '0', (event) => { ++asked; recorded(Number(event.target.value)); });
    panel.append(make('div', { class: 'fields' }, field('Sample', samples)), field('Text', input), list, sum);
    recorded(0);
  };

  // The roofline. Operations are counted as labs/gpu/costs.h counts them; ceilings come from facts and records.
  const size = (value, unit) => {
    if (!Number.isFinite(value)) return '–';
    const prefixes = ['', 'k', 'M', 'G', 'T', 'P', 'E'];
    let step = 0;
    while (value >= 999.5 && step < prefixes.length - 1) { value /= 1000; ++step; }
    return `${Number(value.toPrecision(3))} ${prefixes[step]}${unit}`;
  };
  const time = (seconds) => {
    for (const [scale, unit] of [[1, 's'], [1e-3, 'ms'], [1e-6, 'µs']]) if (seconds >= scale) return `${Number((seconds / scale).toPrecision(3))} ${unit}`;
    return `${Number((seconds / 1e-9).toPrecision(3))} ns`;
  };
  const operations = {
    linear: { words: 'Linear layer', sizes: { M: ['rows M', 1], N: ['outputs N', 4096], K: ['inputs K', 4096] },
      cost: ({ M, N, K }, s) => [2 * M * N * K, s * (N * K + M * K + M * N)] },
    prefill: { words: 'Causal attention over a prompt', sizes: { T: ['tokens T', 4096], H: ['query heads H', 32], G: ['key heads G', 8], D: ['head size D', 128] },
      cost: ({ T, H, G, D }, s) => [2 * H * D * T * (T + 1), 2 * s * T * D * (H + G)] },
    decode: { words: 'Attention of one new token', sizes: { B: ['sequences B', 64], T: ['keys each T', 4096], H: ['query heads H', 32], G: ['key heads G', 8], D: ['head size D', 128] },
      cost: ({ B, T, H, G, D }, s) => [4 * B * H * D * T, 2 * s * B * D * (G * T + H)] },
    norm: { words: 'RMSNorm', sizes: { R: ['rows R', 4096], C: ['width C', 4096] },
      cost: ({ R, C }, s) => [4 * R * C, s * (2 * R * C + C)] },
  };
  kinds.roofline = (panel, state, say, host) => {
    const kindsOfNumber = [['2', 'bf16'], ['4', 'fp32']];
    const sizes = make('div', { class: 'fields' }), table = make('tbody'), plot = make('div', { class: 'roof' });
    const inputs = {};
    const update = () => {
      const operation = operations[what.value], bytesEach = Number(number.value), given = {};
      for (const [key, input] of Object.entries(inputs)) given[key] = Number(input.value);
      const wrong = Object.values(inputs).find((input) => !(Number(input.value) >= 1));
      const chosen = state.machines[Number(machine.value)];
      const peak = (bytesEach === 4 ? chosen.fp32 : chosen.bf16) * 1e12, wide = chosen.bandwidth * 1e12;
      if (wrong || !(peak > 0) || !(wide > 0)) {
        table.replaceChildren();
        say('computed', 'A size is a number of at least 1.');
        return;
      }
      const [flops, bytes] = operation.cost(given, bytesEach), intensity = flops / bytes;
      const work = flops / peak, traffic = bytes / wide;
      const row = (id, name, value, note) => make('tr', {}, make('th', { scope: 'row' }, name), make('td', { 'data-value': id }, value), make('td', {}, note));
      table.replaceChildren(
        row('flops', 'operations F', size(flops, 'flop'), 'a multiplication and an addition are two'),
        row('bytes', 'bytes B', size(bytes, 'B'), 'each input once, each output once'),
        row('intensity', 'intensity F / B', `${Number(intensity.toPrecision(3))} flop/B`, `the limits meet at ${Number((peak / wide).toPrecision(3))}`),
        row('work', 'arithmetic F / P', time(work), `P = ${size(peak, 'flop/s')}`),
        row('traffic', 'memory B / W', time(traffic), `W = ${size(wide, 'B/s')}`),
        row('bound', 'no faster than', time(Math.max(work, traffic)), work > traffic ? 'bound by arithmetic' : 'bound by memory'),
      );
      draw(plot, Math.max(300, Math.min(560, host.clientWidth)), peak, wide, intensity, operation.words);
      say('computed', chosen.about);
    };
    const choose = () => {
      for (const key of Object.keys(inputs)) delete inputs[key];
      sizes.replaceChildren(...Object.entries(operations[what.value].sizes).map(([key, [name, value]]) => {
        inputs[key] = make('input', { type: 'number', min: '1', step: '1', value, inputmode: 'numeric', 'data-size': key, oninput: update, onchange: update });
        return field(name, inputs[key]);
      }));
      update();
    };
    const what = choice(Object.entries(operations).map(([key, each]) => [key, each.words]), 'linear', choose);
    const number = choice(kindsOfNumber, '2', update);
    const machine = choice(state.machines.map((each, i) => [String(i), each.name]), '0', update);
    what.dataset.what = 'operation'; number.dataset.what = 'number'; machine.dataset.what = 'machine';
    panel.append(make('div', { class: 'fields' }, field('Operation', what), field('Numbers', number), field('Machine', machine)), sizes,
      make('div', { class: 'table', tabindex: '0', role: 'region', 'aria-label': 'The bound' }, make('table', {}, table)), plot);
    choose();
  };
  // Rate over intensity, both in powers of ten: the roof, and the point of the operation under it.
  const draw = (plot, w, peak, wide, intensity, name) => {
    const [left, right, top, bottom, h] = [52, w - 16, 16, 222, 262];
    const x = (i) => left + (Math.log10(i) + 1) / 6 * (right - left);
    const low = Math.floor(Math.log10(0.1 * wide)), high = Math.ceil(Math.log10(peak) + 0.15);
    const y = (rate) => bottom - (Math.log10(rate) - low) / (high - low) * (bottom - top);
    const s = (tag, given, ...inside) => make(tag, { in: 'svg', ...given }, ...inside);
    const svg = s('svg', { viewBox: `0 0 ${w} ${h}`, class: 'plot', 'aria-hidden': 'true', focusable: 'false' });
    for (let i = -1; i <= 5; ++i) svg.append(s('line', { x1: x(10 ** i), x2: x(10 ** i), y1: top, y2: bottom, class: 'grid' }), s('text', { x: x(10 ** i), y: bottom + 18, class: 'middle' }, i < 0 ? '0.1' : size(10 ** i, '')));
    for (let r = low; r <= high; ++r) svg.append(s('line', { x1: left, x2: right, y1: y(10 ** r), y2: y(10 ** r), class: 'grid' }), s('text', { x: left - 6, y: y(10 ** r) + 4 }, size(10 ** r, '')));
    const at = Math.min(Math.max(intensity, 0.1), 1e5), rate = Math.min(peak, at * wide);
    svg.append(s('path', { d: `M${x(0.1)} ${y(0.1 * wide)}L${x(peak / wide)} ${y(peak)}H${right}`, class: 'line' }),
      s('line', { x1: x(at), x2: x(at), y1: y(rate), y2: bottom, class: 'drop' }), s('circle', { cx: x(at), cy: y(rate), r: 5, class: 'ours' }),
      s('text', { x: x(at) + (at > 1e3 ? -9 : 9), y: y(rate) + (at > 1e3 ? -9 : 16), class: at > 1e3 ? '' : 'value' }, `${name}: ${size(rate, 'flop/s')}`),
      s('text', { x: right, y: h - 4 }, 'operations for each byte'), s('text', { x: left, y: 10, class: 'value' }, 'operations per second'));
    plot.replaceChildren(svg);
  };

  // What figures of the engine share. Live: the API that `rose serve` has on the origin of the page.
  const post = async (path, body, signal) => {
    const answer = await fetch(path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body), signal });
    if (!answer.ok) throw Object.assign(new Error((await answer.json().catch(() => ({}))).error?.message || `status ${answer.status}`), { status: answer.status });
    return answer;
  };
  // Says why there is no answer: nobody serves the page, or the engine refuses.
  const why = (error) => (error.status && ![404, 405, 501].includes(error.status) ? `The engine says: ${error.message}` : 'No engine serves this page: `make serve` starts one with it.');
  const button = (words, given) => make('button', { type: 'button', ...given }, words);
  const slider = (words, what, low, high, step, value, say, change) => {
    const shown = make('output'), input = make('input', { type: 'range', min: low, max: high, step, value, 'data-what': what });
    const tell = () => { shown.textContent = say(Number(input.value)); input.setAttribute('aria-valuetext', shown.textContent); };
    input.addEventListener('input', () => { tell(); change(); });
    const made = field(words, input);
    made.querySelector('label').append(' ', shown);
    tell();
    return [made, input, tell];
  };

  // Sampling. Recorded: what the engine answered to a few prompts and settings. Live: POST /v1/completions for one token, once for what the model
  // says (logprobs) and once for what is left after the settings (processed_logprobs), both computed by the engine that draws.
  kinds.sampling = (panel, state, say) => {
    const body = make('tbody'), sum = make('p', { class: 'sum' });
    const percent = (p) => (p >= 0.0995 ? (100 * p).toFixed(1) : p > 0 ? (100 * p).toPrecision(2) : '0') + ' %';
    const bar = (p, kind) => make('td', {}, make('span', { class: `bar-of ${kind}`, style: `--share: ${Math.min(p, 1)}` }, percent(p)));
    const show = (raw, left, drawn) => {
      const rows = raw.slice(0, 12);
      body.replaceChildren(...rows.map(([token, p]) => make('tr', token === drawn ? { class: 'drawn' } : {},
        make('th', { scope: 'row' }, make('code', {}, token.replace(/ /g, '·').replace(/\n/g, '\\n').replace(/\t/g, '\\t') || '∅')),
        bar(p, 'said'), bar(left.get(token) || 0, 'left'))));
      const kept = [...left.values()].filter((p) => p > 0);
      const outside = 1 - kept.reduce((all, p) => all + p, 0);
      sum.textContent = (kept.length < left.size || outside < 1e-4 ? `${kept.length} token${kept.length === 1 ? '' : 's'} can be drawn` : `The ${left.size} likeliest carry ${percent(1 - outside)} of what can be drawn`) +
        (drawn === undefined ? '.' : `; this time it was “${drawn.replace(/ /g, '·').replace(/\n/g, '\\n')}”.`);
    };
    const settings = () => ({ temperature: Number(warm.value), top_k: Number(many.value) || -1, top_p: Number(nucleus.value), min_p: Number(least.value) });
    const recorded = (index) => {
      const one = state.samples[index];
      prompt.value = one.prompt;
      [warm.value, many.value, nucleus.value, least.value] = [one.settings.temperature, Math.max(one.settings.top_k, 0), one.settings.top_p, one.settings.min_p];
      for (const tell of tells) tell();
      show(one.raw, new Map(one.left), one.drawn);
      say('recorded', `${state.model}, on ${state.recorded}. Change the text or a setting to ask the engine, if one serves this page.`);
    };
    let asked = 0, pause = 0, known = { prompt: null, raw: null };
    const distribution = (answer) => {
      const { logprobs } = answer.choices[0];
      return [Object.entries(logprobs.top_logprobs[0]).map(([token, l]) => [token, l <= -9999 ? 0 : Math.exp(l)]).sort((a, b) => b[1] - a[1]), logprobs.tokens[0]];
    };
    const ask = async () => {
      const mine = ++asked, text = prompt.value, one = { prompt: text, max_tokens: 1, logprobs: 20 };
      try {
        if (known.prompt !== text) known = { prompt: text, raw: distribution(await (await post('/v1/completions', { ...one, temperature: 0 })).json())[0] };
        const [left, drawn] = distribution(await (await post('/v1/completions', { ...one, ...settings(), processed_logprobs: true })).json());
        if (mine !== asked) return;
        show(known.raw, new Map(left), drawn);
        say('live', 'Computed and drawn by the engine that serves this page.');
      } catch (error) {
        if (mine !== asked) return;
        body.replaceChildren();
        sum.textContent = '';
        say('recorded', `${why(error)} Choose a sample to see what was recorded.`);
      }
    };
    const soon = () => { clearTimeout(pause); pause = setTimeout(ask, 150); };
    const prompt = make('textarea', { rows: '2', spellcheck: 'false', dir: 'auto', oninput: soon });
    const samples = choice(state.samples.map((sample, i) => [String(i), sample.name]), '0', (event) => { ++asked; recorded(Number(event.target.value)); });
    const plain = (digits) => (value) => value.toFixed(digits);
    const [warmField, warm, tellWarm] = slider('Temperature', 'temperature', 0, 2, 0.05, 1, plain(2), soon);
    const [manyField, many, tellMany] = slider('Top-k', 'top_k', 0, 20, 1, 0, (value) => (value ? String(value) : 'off'), soon);
    const [nucleusField, nucleus, tellNucleus] = slider('Top-p', 'top_p', 0.05, 1, 0.05, 1, (value) => (value < 1 ? value.toFixed(2) : 'off'), soon);
    const [leastField, least, tellLeast] = slider('Min-p', 'min_p', 0, 0.5, 0.01, 0, (value) => (value ? value.toFixed(2) : 'off'), soon);
    const tells = [tellWarm, tellMany, tellNucleus, tellLeast];
    panel.append(make('div', { class: 'fields' }, field('Sample', samples)), field('Text to continue', prompt),
      make('div', { class: 'fields sliders' }, warmField, manyField, nucleusField, leastField),
      make('div', { class: 'actions' }, button('Draw again', { onclick: ask })),
      make('div', { class: 'table', tabindex: '0', role: 'region', 'aria-label': 'The next token' },
        make('table', { class: 'next' }, make('thead', {}, make('tr', {}, ...['next token', 'the model says', 'after the settings'].map((name) => make('th', { scope: 'col' }, name)))), body)), sum);
    recorded(0);
  };

  // Pages and the running batch. Recorded: one answer of GET /debug/state. Live: that address, four times a second, while the reader watches.
  kinds.pool = (panel, state, say) => {
    const body = make('tbody'), sum = make('p', { class: 'sum' }), map = make('div', { class: 'pages map', role: 'img' });
    const most = 512;
    const show = ({ engines, page_size: size }) => {
      const rows = [], maps = [];
      let used = 0, total = 0, number = 0;
      for (const engine of engines) {
        const owners = new Map();
        for (const one of engine.sequences) for (const page of one.pages) owners.set(page, (owners.get(page) || []).concat(number + engine.sequences.indexOf(one)));
        for (const one of engine.sequences) {
          const colour = number++ % 6;
          const squares = make('div', { class: 'pages', role: 'img', 'aria-label': `${one.pages.length} pages, ${one.pages.filter((page) => owners.get(page).length > 1).length} of them shared` },
            ...one.pages.slice(0, 160).map((page) => make('i', { class: owners.get(page).length > 1 ? 'shared' : `of${colour}`, title: `page ${page}` })));
          rows.push(make('tr', { 'data-request': `${one.request}` }, make('th', { scope: 'row' }, String(one.request)), make('td', {}, one.state === 'running' ? (one.tokens > one.prompt_tokens ? 'answers' : 'is read') : 'waits'),
            make('td', {}, `${one.prompt_tokens} + ${one.tokens - one.prompt_tokens}`), make('td', {}, String(one.cached)), make('td', {}, squares)));
        }
        let page = 0;
        const squares = [];
        for (const [name, count] of engine.page_states) for (let i = 0; i < count; ++i, ++page) {
          if (name === 'scratch') continue;
          ++total;
          used += name === 'free' ? 0 : 1;
          const of = owners.get(page);
          if (squares.length < most) squares.push(make('i', { class: name === 'referenced' && of ? (of.length > 1 ? 'shared' : `of${of[0] % 6}`) : name }));
        }
        while (squares.length > 64 && squares[squares.length - 1].className === 'free') squares.pop();
        maps.push(...squares);
      }
      body.replaceChildren(...rows);
      if (!rows.length) body.append(make('tr', {}, make('td', { colspan: '5' }, 'Nobody is being answered.')));
      map.replaceChildren(...maps);
      map.setAttribute('aria-label', `${used} of ${total} pages hold keys and values`);
      const running = engines.flatMap((engine) => engine.sequences).filter((one) => one.state === 'running').length;
      sum.textContent = `${running} running, ${number - running} waiting; ${used} of ${total} pages of ${size} tokens hold something` + (engines.length > 1 ? `, in ${engines.length} engines.` : '.');
    };
    const recorded = () => {
      show(state.state);
      say('recorded', `${state.model}, on ${state.recorded}, while it answered four questions. Watch the engine, if one serves this page.`);
    };
    let timer = 0, visible = true;
    const stop = (words) => {
      clearTimeout(timer);
      timer = 0;
      watch.textContent = 'Watch the engine';
      watch.setAttribute('aria-pressed', 'false');
      if (words) { recorded(); say('recorded', words); }
    };
    const tick = async () => {
      if (!visible || document.hidden) {  // nobody sees it: nothing is asked
        timer = setTimeout(tick, 250);
        return;
      }
      try {
        const answer = await fetch('/debug/state');
        if (!answer.ok) throw Object.assign(new Error((await answer.json().catch(() => ({}))).error?.message || `status ${answer.status}`), { status: answer.status });
        const now = await answer.json();
        if (!timer) return;
        show(now);
        say('live', now.engines.length ? `${now.runner}: ${now.steps} steps since it started.` : 'The engine is starting.');
        timer = setTimeout(tick, 250);
      } catch (error) {
        if (timer) stop(why(error));
      }
    };
    const start = () => {
      watch.textContent = 'Stop watching';
      watch.setAttribute('aria-pressed', 'true');
      timer = setTimeout(tick, 0);
    };
    const watch = button('Watch the engine', { 'aria-pressed': 'false', onclick: () => (timer ? (stop(), say('live', 'This is what it did when you stopped watching.')) : start()) });
    const ask = button('Ask four questions', {
      onclick: async () => {
        if (!timer) start();
        const long = 'You are the gardener of an old rose garden behind a library. You answer visitors in two or three sentences, kindly and exactly, and you are never short of a story about the flowers, the wall, the bees, or the people who have planted something here in the last two hundred years. You do not give away what is behind the green door. ';
        const visit = (words, tokens) => post('/v1/chat/completions', { messages: [{ role: 'system', content: long }, { role: 'user', content: words }], max_tokens: tokens, ignore_eos: true });  // the words are not shown
        const questions = ['Which rose is the oldest?', 'When do you cut them?', 'What do roses fear?', 'Why is the wall so high?'];
        await Promise.allSettled([visit('Good morning.', 1)]);  // who comes first reads the beginning for all
        await Promise.allSettled(questions.map((words) => visit(words, 160)));
      },
    });
    panel.append(make('div', { class: 'actions' }, watch, ask), sum,
      make('div', { class: 'table', tabindex: '0', role: 'region', 'aria-label': 'Requests and their pages' },
        make('table', { class: 'batch' }, make('thead', {}, make('tr', {}, ...['request', 'it', 'prompt + answer', 'found', 'pages'].map((name) => make('th', { scope: 'col' }, name)))), body)),
      map, make('p', { class: 'legend' }, ...[['shared', 'shared'], ['of0', 'of one request'], ['cached', 'known, nobody’s'], ['in_flight', 'in flight'], ['free', 'free']].flatMap(([kind, name]) => [make('i', { class: kind }), `${name} `])));
    recorded();
    new IntersectionObserver((entries) => { visible = entries.at(-1).isIntersecting; }).observe(panel);
    document.addEventListener('rose-asks', () => { if (!timer) start(); });
  };

  // A conversation. Recorded: one. Live: POST /v1/chat/completions with "stream": true, its events added up as they come.
  kinds.chat = (panel, state, say) => {
    const log = make('div', { class: 'talk', role: 'log', 'aria-label': 'Conversation', tabindex: '0' }), sum = make('p', { class: 'sum' });
    const turn = (role, text) => {
      const words = make('p', {}, text);
      log.append(make('div', { class: role }, make('b', {}, role === 'user' ? 'You' : 'Model'), words));
      log.scrollTop = log.scrollHeight;
      return words;
    };
    let messages = [], running = null, live = false;
    const recorded = () => {
      log.replaceChildren();
      for (const { role, content } of state.messages) turn(role, content);
      sum.textContent = '';
      say('recorded', `${state.model}, on ${state.recorded}. Ask something yourself, if an engine serves this page.`);
    };
    const busy = (is) => { send.disabled = is; end.disabled = !is; };
    const ask = async () => {
      const text = input.value.trim();
      if (!text || running) return;
      if (!live) log.replaceChildren();
      messages.push({ role: 'user', content: text });
      turn('user', text);
      input.value = sum.textContent = '';
      const words = turn('assistant', ''), start = performance.now();
      let first = 0, used = null, reason = '', said = '';
      running = new AbortController();
      busy(true);
      try {
        const answer = await post('/v1/chat/completions', { messages, temperature: Number(warm.value), max_tokens: 400, stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } }, running.signal);
        live = true;
        document.dispatchEvent(new Event('rose-asks'));
        say('live', 'Written by the engine that serves this page.');
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        for (let rest = ''; ;) {
          const { done, value } = await reader.read();
          if (done) break;
          const lines = (rest + value).split('\n');
          rest = lines.pop();
          for (const line of lines) {
            if (!line.startsWith('data: {')) continue;
            const event = JSON.parse(line.slice(6));
            if (event.error) throw Object.assign(new Error(event.error.message), { status: 500 });
            used = event.usage || used;
            for (const { delta, finish_reason: finish } of event.choices) {
              said += delta.content || '';
              reason = finish || reason;
            }
            if (said && !first) first = performance.now();
            words.textContent = said;
            log.scrollTop = log.scrollHeight;
          }
        }
      } catch (error) {
        if (error.name === 'AbortError') {
          reason = 'stopped by you';
        } else if (!live && !said) {
          messages = [];
          input.value = text;
          recorded();
          say('recorded', why(error));
          running = null;
          return busy(false);
        } else {
          words.append(make('em', {}, ` ${why(error)}`));
        }
      }
      if (said) messages.push({ role: 'assistant', content: said }); else messages.pop();
      if (first && used) {
        const rate = used.completion_tokens > 1 ? `, then ${((used.completion_tokens - 1) / ((performance.now() - first) / 1000)).toFixed(0)} tokens a second` : '';
        sum.textContent = `${used.prompt_tokens} tokens read, ${used.completion_tokens} written (${{ stop: 'to the end', length: 'as many as were allowed' }[reason] || reason}): the first after ${(first - start).toFixed(0)} ms${rate}.`;
      }
      running = null;
      busy(false);
    };
    const input = make('textarea', { rows: '2', dir: 'auto', onkeydown: (event) => { if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); ask(); } } });
    const send = button('Send', { onclick: ask }), end = button('Stop', { disabled: '', onclick: () => running?.abort() });
    const fresh = button('New conversation', { onclick: () => { running?.abort(); messages = []; log.replaceChildren(); sum.textContent = ''; input.focus(); } });
    const [warmField, warm] = slider('Temperature', 'temperature', 0, 2, 0.05, 0.7, (value) => value.toFixed(2), () => {});
    panel.append(log, sum, field('Your words', input), make('div', { class: 'actions' }, send, end, fresh, warmField));
    input.value = state.try || '';
    recorded();
  };

  customElements.define('rose-figure', class extends HTMLElement {
    connectedCallback() {
      const data = this.querySelector('script[type="application/json"]'), kind = kinds[this.getAttribute('kind')];
      if (this.ready || !data || !kind) return;
      this.ready = true;
      const recorded = [...this.children].filter((child) => child !== data);
      const shown = make('p', { class: 'shown', role: 'status' });
      const say = (state, words) => {
        this.dataset.shows = state;
        shown.replaceChildren(make('b', {}, { live: 'Live. ', recorded: 'Recorded. ', computed: 'Computed in the page. ' }[state]), words);
      };
      const panel = make('div', { class: 'panel' });
      try {
        kind(panel, JSON.parse(data.textContent), say, this);
      } catch (error) {
        console.warn('rose-figure:', error);  // the recorded state stays
        return;
      }
      const fold = make('details', { class: 'recorded' }, make('summary', {}, 'The recorded state as a table'), ...recorded);
      this.append(panel, shown, fold);
    }
  });
})();
