"""The style of the page."""

from __future__ import annotations

__all__ = ["PAGE"]

PAGE = """
:root { color-scheme: light dark; --panel: #f6f8fa; --accent: #2f6fb5 }
@media (prefers-color-scheme: dark) { :root { --panel: #161b22; --accent: #5b9ee6 } }
* { box-sizing: border-box }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100% }
body { margin: 0; background: var(--surface); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif }
main { max-width: 1240px; margin: 0 auto; padding: 16px }
h1 { font-size: 1.5rem; line-height: 1.2; margin: 8px 0 }
h2 { font-size: 1.2rem; margin: 40px 0 4px }
h3 { font-size: 1rem; margin: 24px 0 8px }
p { margin: 4px 0 12px; max-width: 75ch }
.muted { color: var(--muted) }
.answer { background: var(--panel); border-left: 4px solid var(--accent); border-radius: 6px;
  padding: 12px 16px; margin: 16px 0; font-size: 1.05rem }
.answer p { margin: 4px 0 }
.warning { border-left: 4px solid var(--differ); background: var(--panel); border-radius: 6px;
  padding: 8px 16px; font-weight: 600 }
.charts { display: grid; gap: 32px 40px; grid-template-columns: repeat(auto-fill,
  minmax(min(100%, 340px), 1fr)) }
.charts svg { display: block; width: 100%; max-width: 480px; height: auto }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; padding: 0; margin: 8px 0 16px;
  list-style: none; font-size: .875rem; color: var(--muted) }
.swatch { display: inline-block; width: 14px; height: 14px; border-radius: 2px;
  vertical-align: -2px; margin-right: 7px; background: var(--bar) }
.swatch.auto { background: var(--auto) }
.swatch.wrong { background: none; border: 1px dashed var(--muted) }
.scroll { overflow-x: auto; max-width: 100%; border: 1px solid var(--grid); border-radius: 6px }
.scroll:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px }
table { border-collapse: collapse; font-size: .8125rem; font-variant-numeric: tabular-nums;
  width: 100% }
th, td { padding: 4px 8px; text-align: right; white-space: nowrap }
thead th { border-bottom: 1px solid var(--grid); color: var(--muted); font-weight: 600 }
tbody th { font-weight: 400 }
tbody tr + tr td, tbody tr + tr th { border-top: 1px solid var(--grid) }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--surface) }
td.words, th.words { text-align: left }
tr.section th { background: var(--panel); font-weight: 600; text-align: left }
tr.auto th, tr.auto td { font-weight: 600 }
tr.wrong td.words { color: var(--differ); font-weight: 600 }
dl { display: grid; grid-template-columns: minmax(90px, max-content) 1fr; gap: 2px 16px;
  font-size: .9rem; margin: 8px 0 }
dt { color: var(--muted) }
dd { margin: 0; overflow-wrap: anywhere }
details { margin: 8px 0 }
summary { cursor: pointer; font-weight: 600 }
ul.files { font-size: .875rem; overflow-wrap: anywhere; padding-left: 24px; margin: 4px 0 }
footer { margin: 40px 0 24px; font-size: .875rem }
"""
