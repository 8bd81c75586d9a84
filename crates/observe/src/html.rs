//! What all pages have that are one file and need nothing else: their head and their style. They allow no script and fetch nothing.

use crate::svg::escaped;

const STYLE: &str = "\
:root{color-scheme:light dark;--ground:#f4f6f9;--card:#fff;--line:#d9dfe7;--text:#18202a;--muted:#556170;--bar:#2f7fd6;\
--bar-in:#1f9d86}\
@media(prefers-color-scheme:dark){:root{--ground:#0e1218;--card:#171d26;--line:#2b3442;--text:#e7ecf3;--muted:#9fabba;\
--bar:#58a6ff;--bar-in:#46c5ab}}\
*{box-sizing:border-box}body{margin:0 auto;padding:0 16px 48px;max-width:70rem;background:var(--ground);color:var(--text);\
font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}\
h1{font-size:22px;margin:24px 0 4px}h2{font-size:19px;margin:40px 0 8px}h3{font-size:15px;margin:0 0 8px}\
.part,figure{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px;margin:14px 0;\
min-width:0}\
figcaption{font-weight:600}small,.counts,.none{color:var(--muted);font-weight:400}.counts{font-size:12px;margin:8px 0 0}\
.counts b{font-weight:600}.scroll,figure{overflow-x:auto}\
svg{display:block;width:100%;height:auto}svg text{font-size:12px;fill:currentColor}.grid{stroke:currentColor;opacity:.15}\
.legend{font-size:13px;margin:6px 0 0}.legend span{margin-right:1em}\
.legend i{display:inline-block;width:.8em;height:.8em;margin-right:.3em}\
table{border-collapse:collapse;font-size:13px;min-width:100%}\
th,td{padding:4px 8px;text-align:right;border-bottom:1px solid var(--line);font-variant-numeric:tabular-nums;\
white-space:nowrap}\
th{color:var(--muted);font-weight:600;vertical-align:bottom}\
th:first-child,td:first-child,.left{text-align:left;white-space:normal;min-width:9em}\
.matrix{min-width:0}.matrix td{text-align:center}.matrix td:first-child{text-align:left}.matrix th.turned{vertical-align:bottom;padding:4px;white-space:normal;min-width:0}\
.turned span{writing-mode:vertical-rl;transform:rotate(180deg);max-height:24em;text-align:left}\
.e0{background:#d55e0099}.e1{background:#e69f0088}.e2{background:#f0e44266}.e3{background:#56b4e955}\
.e4{background:#009e7344}.e5{background:#009e7388}\
.bar{display:block;height:8px;border-radius:4px;background:var(--bar);min-width:1px}.bar.in{background:var(--bar-in)}\
.bars{min-width:110px}.key i{display:inline-block;padding:0 .6em;margin-right:.3em;font-style:normal}\
.cards{display:flex;flex-wrap:wrap;gap:10px}.cards div{background:var(--card);border:1px solid var(--line);\
border-radius:10px;padding:10px 14px;flex:1 1 130px}.cards b{display:block;font-size:20px}\
ul{padding-left:1.2em;margin:6px 0}\
@media(max-width:640px){svg{min-width:540px}svg text{font-size:19px}}";

/// Up to the heading of a page with this title. It ends with `</body></html>`.
pub fn page_head(title: &str) -> String {
    let title = escaped(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"referrer\" content=\"no-referrer\">\
         <title>{title}</title><style>{STYLE}</style></head><body>\n\
         <h1>{title}</h1>\n"
    )
}
