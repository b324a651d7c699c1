// Theme, search, copying, ticks. Every page is complete without it.
(() => {
  'use strict';
  const root = document.currentScript.dataset.root || './';
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
  const memory = {
    get(key) { try { return JSON.parse(localStorage.getItem(key)); } catch { return null; } },
    set(key, value) { try { localStorage.setItem(key, JSON.stringify(value)); } catch { /* private window */ } },
  };

  // Theme
  const button = $('.theme');
  const dark = () => (document.documentElement.dataset.theme || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark';
  button.hidden = false;
  button.addEventListener('click', () => {
    const theme = dark() ? 'light' : 'dark';
    document.documentElement.dataset.theme = theme;
    try { localStorage.setItem('rose-theme', theme); } catch { /* private window */ }
  });

  // Ticks, and on the roadmap the chapters whose questions are all ticked
  const ticks = memory.get('rose-ticks') || {};
  const chapter = location.pathname.split('/').slice(-2).join('/').replace(/\.html$/, '');
  const boxes = $$('[data-tick]');
  for (const box of boxes) {
    box.checked = Boolean((ticks[chapter] || {})[box.dataset.tick]);
    box.addEventListener('change', () => {
      ticks[chapter] = { ...ticks[chapter], [box.dataset.tick]: box.checked, of: boxes.length };
      memory.set('rose-ticks', ticks);
    });
  }
  for (const node of $$('.node[data-chapter]')) {
    const { of, ...answers } = ticks[node.dataset.chapter] || {};
    node.classList.toggle('done', of > 0 && Object.values(answers).filter(Boolean).length === of);
  }

  // Copying what is shown: an unfolded reference is copied as code, a folded one as a comment
  const shown = (node, indent) => [...node.childNodes].map((child) => {
    if (/^(PRE|CODE)$/.test(child.nodeName)) return child.textContent.replace(/^(?=.)/gm, indent);
    if (!child.classList || !child.classList.contains('ref')) return '';
    const deeper = indent + ' '.repeat(Number(child.style.getPropertyValue('--indent')));
    const fold = $('details', child);
    return '\n' + (fold.open ? shown(fold, deeper).replace(/^\n/, '') : deeper + '// ' + $('summary', fold).textContent) + '\n';
  }).join('');
  for (const caption of $$('.chunk > figcaption')) {
    const copy = document.createElement('button');
    copy.type = 'button';
    copy.className = 'copy';
    copy.textContent = 'Copy';
    copy.addEventListener('click', async () => {
      await navigator.clipboard.writeText(shown($('.code', caption.parentNode), ''));
      copy.textContent = 'Copied';
      setTimeout(() => { copy.textContent = 'Copy'; }, 1500);
    });
    caption.append(copy);
  }

  // A formula too wide for its place scrolls, from the keyboard, too
  addEventListener('load', () => { for (const box of $$('.equation > div')) if (box.scrollWidth > box.clientWidth) box.tabIndex = 0; });

  // Search: the index is loaded with the first key
  const form = $('.search'), field = $('#q'), results = $('#search-results');
  let engine = null, asked = 0;
  const load = () => {
    engine ||= import(new URL(root + 'pagefind/pagefind.js', location.href).href);
    return engine;
  };
  const say = (text) => { results.hidden = false; results.innerHTML = `<p>${text}</p>`; };
  const search = async () => {
    const mine = ++asked, words = field.value.trim();
    if (!words) { results.hidden = true; return; }
    let found;
    try {
      const pagefind = await load();
      found = await pagefind.debouncedSearch(words, {}, 120);
    } catch {
      say('The search needs a server: <code>make site-serve</code>.');
      return;
    }
    if (!found || mine !== asked) return;
    const pages = await Promise.all(found.results.slice(0, 8).map((result) => result.data()));
    if (mine !== asked) return;
    if (!pages.length) { say('Nothing found.'); return; }
    results.hidden = false;
    results.replaceChildren(...pages.map((page) => {
      const best = (page.sub_results || [])[0] || page;
      const link = document.createElement('a');
      link.href = best.url;
      link.textContent = page.meta.title;
      if (best.title && best.title !== page.meta.title) link.textContent += ' › ' + best.title.replace(/ #$/, '');
      const excerpt = document.createElement('small');
      excerpt.innerHTML = best.excerpt;  // Pagefind's own, escaped, with <mark>
      link.append(excerpt);
      return link;
    }));
  };
  form.hidden = false;
  form.addEventListener('submit', (event) => { event.preventDefault(); const first = $('a', results); if (first) first.click(); });
  field.addEventListener('keydown', load, { once: true });
  field.addEventListener('input', search);
  document.addEventListener('click', (event) => { if (!form.contains(event.target)) results.hidden = true; });
  document.addEventListener('keydown', (event) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.nodeName) && event.target.type !== 'checkbox';
    if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey) { event.preventDefault(); field.focus(); field.select(); }
    if (event.key === 'Escape' && !results.hidden) { results.hidden = true; field.focus(); }
    if ((event.key === 'ArrowDown' || event.key === 'ArrowUp') && form.contains(event.target) && !results.hidden) {
      const stops = [field, ...$$('a', results)];
      const next = stops[stops.indexOf(event.target) + (event.key === 'ArrowDown' ? 1 : -1)];
      if (next) { event.preventDefault(); next.focus(); }
    }
  });
})();
