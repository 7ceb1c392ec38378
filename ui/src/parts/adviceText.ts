import i18next from 'i18next'
import { advice } from '~/api/conditions.json'
import others from './advice.zh.json'

const known: Record<string, string | undefined> = { ...advice, ...others }

/** What the server says about a condition, in the person's language; in English where nobody has translated it. */
export function adviceText(english: string): string {
  if (i18next.language !== 'zh') return english
  const platform = /^it can be checked on (.+); this run is on (.+)$/.exec(english)
  if (platform) return `只能在 ${platform[1] ?? ''} 上检查；本次运行使用 ${platform[2] ?? ''}`
  return known[english] ?? english
}
