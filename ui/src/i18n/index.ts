import i18next from 'i18next'
import { initReactI18next } from 'react-i18next'

export type Language = 'en' | 'zh'

const REMEMBERED = 'tensight.language'

function firstLanguage(): Language {
  const remembered = localStorage.getItem(REMEMBERED)
  if (remembered === 'en' || remembered === 'zh') return remembered
  return navigator.language.toLowerCase().startsWith('zh') ? 'zh' : 'en'
}

void i18next.use(initReactI18next).init({
  lng: firstLanguage(),
  fallbackLng: 'en',
  resources: {},
  initAsync: false,
  interpolation: { escapeValue: false },
})

type Same<T> = { [K in keyof T]: T[K] extends string ? string : Same<T[K]> }

/**
 * Declare the texts of a panel in both languages, and return the namespace for `useTranslation`.
 *
 * The Chinese texts must have exactly the keys of the English ones: the compiler checks it.
 */
export function texts<T extends object>(namespace: string, en: T, zh: Same<T>): string {
  i18next.addResourceBundle('en', namespace, en, true, true)
  i18next.addResourceBundle('zh', namespace, zh, true, true)
  return namespace
}

export function setLanguage(language: Language): void {
  localStorage.setItem(REMEMBERED, language)
  document.documentElement.lang = language === 'zh' ? 'zh-CN' : 'en'
  void i18next.changeLanguage(language)
}

document.documentElement.lang = i18next.language === 'zh' ? 'zh-CN' : 'en'
