import type { Language } from '~/i18n'
import declared from './statistics.json'
import type { Statistics } from './types'

/** A number computed over the finite elements of a tensor; null if there are none, or if it was not recorded. */
export type Measure = {
  [Name in keyof Statistics]-?: number | null extends Statistics[Name] ? Name : never
}[keyof Statistics]

/** The number of elements, or of elements of one kind. */
export type Count = Exclude<keyof typeof declared.words.en, Measure>

/** In the order in which the server declares them. */
export const MEASURES = declared.measures as readonly Measure[]
export const COUNTS = declared.counts as readonly Count[]

type Words = Record<'label' | 'title' | 'meaning', string>

const WORDS: Record<Language, Record<Measure | Count, Words>> = declared.words

/** Short names, for the texts of a panel. */
export const labels = (language: Language) => wordsIn(language, ({ label }) => label)

export const titles = (language: Language) => wordsIn(language, ({ label, title }) => title || label)

/** Short explanations; '' where the name says enough. */
export const meanings = (language: Language) => wordsIn(language, ({ meaning }) => meaning)

function wordsIn(language: Language, of: (words: Words) => string): Record<Measure | Count, string> {
  return Object.fromEntries(
    [...COUNTS, ...MEASURES].map((name) => [name, of(WORDS[language][name])]),
  ) as Record<Measure | Count, string>
}
