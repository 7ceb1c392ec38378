/** Characters that stand out. */
const LONGEST = 60

/** The first words of a sentence, which stand out, and the rest. */
export function headOf(sentence: string): [string, string] {
  if (sentence.length <= LONGEST) return [sentence, '']
  const at = sentence.indexOf(': ')
  return at < 0 || at > LONGEST ? ['', sentence] : [sentence.slice(0, at + 1), sentence.slice(at + 2)]
}
