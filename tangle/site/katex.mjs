// Renders formulas as MathML: one JSON object a line in, {tex, display}; one a line out, {html} or {error, position}.
// KaTeX is Debian's (/usr/share/nodejs/katex), or the one that KATEX names.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

const require = createRequire(import.meta.url);
const katex = require(process.env.KATEX || '/usr/share/nodejs/katex');

// Browsers know one mathvariant, `normal`; the others have letters of their own in Unicode. [capital A, small a, zero]
const variants = {
  'bold': [0x1D400, 0x1D41A, 0x1D7CE], 'bold-italic': [0x1D468, 0x1D482, 0], 'double-struck': [0x1D538, 0x1D552, 0x1D7D8],
  'script': [0x1D49C, 0x1D4B6, 0], 'bold-script': [0x1D4D0, 0x1D4EA, 0], 'fraktur': [0x1D504, 0x1D51E, 0],
  'sans-serif': [0x1D5A0, 0x1D5BA, 0x1D7E2], 'monospace': [0x1D670, 0x1D68A, 0x1D7F6],
};
// Letters that Unicode had before it had their alphabets.
const older = {
  0x1D53A: 'ℂ', 0x1D53F: 'ℍ', 0x1D545: 'ℕ', 0x1D547: 'ℙ', 0x1D548: 'ℚ', 0x1D549: 'ℝ', 0x1D551: 'ℤ', 0x1D49D: 'ℬ', 0x1D4A0: 'ℰ', 0x1D4A1: 'ℱ',
  0x1D4A3: 'ℋ', 0x1D4A4: 'ℐ', 0x1D4A7: 'ℒ', 0x1D4A8: 'ℳ', 0x1D4AD: 'ℛ', 0x1D4BA: 'ℯ', 0x1D4BC: 'ℊ', 0x1D4C4: 'ℴ',
};
const letter = (c, [capital, small, zero]) => {
  const code = c.charCodeAt(0);
  const to = /[A-Z]/.test(c) ? capital + code - 65 : /[a-z]/.test(c) ? small + code - 97 : /[0-9]/.test(c) && zero ? zero + code - 48 : code;
  return older[to] || String.fromCodePoint(to);
};
// Primes: faces draw them raised, so they stand beside their letter and not above it.
const primed = (mathml) => mathml
  .replace(/<mrow>((?:<mo mathvariant="normal">′<\/mo>)+)<\/mrow>(?=<\/msu(?:p|bsup)>)/g, (all, marks) => `<mo>${['', '′', '″', '‴', '⁗'][marks.split('′').length - 1]}</mo>`)
  .replace(/<msup>(<m[in][^>]*>[^<]*<\/m[in]>)<mo[^>]*>([′″‴⁗])<\/mo><\/msup>/g, '<mrow>$1<mo lspace="0em" rspace="0em">$2</mo></mrow>')
  .replace(/<msubsup>(<m[in][^>]*>[^<]*<\/m[in]>)(<m[in][^>]*>[^<]*<\/m[in]>)<mo[^>]*>([′″‴⁗])<\/mo><\/msubsup>/g,
    '<msub><mrow>$1<mo lspace="0em" rspace="0em">$3</mo></mrow>$2</msub>');
const plain = (mathml) => primed(mathml)
  .replace(/<(m[ino]|mtext) mathvariant="([a-z-]+)">([^<]*)<\/\1>/g, (all, tag, variant, words) =>
    variants[variant] ? `<${tag}>${[...words].map((c) => letter(c, variants[variant])).join('')}</${tag}>` : all)
  // Faces draw these accents at the right height; browsers would stretch and drop others.
  .replace(/<mo( stretchy="true")?>([ˉ^~‾])<\/mo><\/mover>/g, (all, stretchy, accent) =>
    `<mo stretchy="${Boolean(stretchy)}">${{ 'ˉ': '¯', '‾': '¯', '^': 'ˆ', '~': '˜' }[accent]}</mo></mover>`)
  // A named function stands apart from its argument.
  // A minus sign after an operator or an opening bracket belongs to its number.
  .replace(/((?:<math[^>]*>|<mrow>|<mo[^>]*>[^<)\]⟩]*<\/mo>)(?:<mspace[^>]*\/>)?)<mo>−<\/mo>/g, '$1<mo form="prefix">−</mo>')
  .replace(/<mo>([+−])<\/mo><mo>=<\/mo>/g, '<mo>$1=</mo>')
  .replace(/<mo>\u2061<\/mo>(?!<mo (?:stretchy="false"|fence="true")>\()/g, '<mspace width="0.1667em"/>');

// `<math>` and elements with one argument are rows already.
const rowless = (mathml) => {
  const open = [];
  let result = '', parent = '';
  for (const [part] of mathml.matchAll(/<[^>]*>|[^<]+/g)) {
    if (part === '</mrow>') {
      if (open.pop()) result += part;
    } else if (part === '<mrow>') {
      const kept = !/^<(?:math|msqrt|mtd|mstyle|mpadded|semantics)\b/.test(parent);
      open.push(kept);
      if (kept) result += part;
    } else {
      result += part;
    }
    parent = part;
  }
  return result.replace(/<mrow>(<m[ion](?: [^>]*)?>[^<]*<\/m[ion]>)<\/mrow>/g, '$1');
};

let out = '';
for (const line of readFileSync(0, 'utf8').split('\n')) {
  if (!line) continue;
  const { tex, display } = JSON.parse(line);
  let answer;
  try {
    const html = katex.renderToString(tex, { displayMode: display, output: 'mathml', throwOnError: true, strict: 'error', trust: false });
    const bare = html.replace(/<annotation[^]*?<\/annotation>/, '').replace(/<\/?semantics>/g, '').replace(' xmlns="http://www.w3.org/1998/Math/MathML"', '');
    answer = { html: plain(rowless(bare.match(/<math[^]*<\/math>/)[0])) };
  } catch (error) {
    const message = String(error.message).replace(/^KaTeX parse error: /, '').replace(/ at (?:position \d+|end of input): [^]*$/, '');
    answer = { error: message, position: error.position || 0 };
  }
  out += JSON.stringify(answer) + '\n';
}
process.stdout.write(out);
