import type { Language } from '~/i18n'

/**
 * The tabs in the middle, from left to right: each is a folder here and a line in this list. A panel is imported only
 * when its tab is first shown, so that the state, which panels import, can import this list.
 */
export const TABS = [
  { id: 'overview', en: 'Overview', zh: '概览', load: () => import('./overview') },
  { id: 'findings', en: 'Findings', zh: '诊断', load: () => import('./findings') },
  { id: 'curves', en: 'Curves', zh: '曲线', load: () => import('./curves') },
  { id: 'graph', en: 'Graph', zh: '计算图', load: () => import('./graph') },
  { id: 'tensors', en: 'Tensors', zh: '张量', load: () => import('./tensors') },
  { id: 'compare', en: 'Compare', zh: '对比', load: () => import('./compare') },
] as const

export type TabId = (typeof TABS)[number]['id']

/** Return the labels of the tabs. */
export function tabNames(language: Language): Record<TabId, string> {
  return Object.fromEntries(TABS.map((tab) => [tab.id, tab[language]])) as Record<TabId, string>
}
