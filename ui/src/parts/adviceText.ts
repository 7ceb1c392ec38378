import i18next from 'i18next'
import { advice } from '~/api/conditions.json'
import others from './advice.zh.json'

const translations: Record<string, string | undefined> = { ...advice, ...others }

/** Translate a sentence of the server about a condition into the user's language; untranslated ones stay in English. */
export function adviceText(english: string): string {
  if (i18next.language !== 'zh') return english
  const platform = /^it can be checked on (.+); this run is on (.+)$/.exec(english)
  if (platform) return `只能在 ${platform[1] ?? ''} 上检查；本次运行使用 ${platform[2] ?? ''}`
  return translations[english] ?? english
}
