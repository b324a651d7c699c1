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
