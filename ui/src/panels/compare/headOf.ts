/** Maximum number of emphasised characters. */
const LONGEST = 60

/** Split a sentence into its first words, which are emphasised, and the rest. */
export function headOf(sentence: string): [string, string] {
  if (sentence.length <= LONGEST) return [sentence, '']
  const at = sentence.indexOf(': ')
  return at < 0 || at > LONGEST ? ['', sentence] : [sentence.slice(0, at + 1), sentence.slice(at + 2)]
}
