import i18next from 'i18next'
import { describe, expect, it } from 'vitest'
import { COLUMNS } from '~/panels/tensors/columns'
import { tensorsTexts } from '~/panels/tensors/texts'
import { COUNTS, labels, MEASURES, meanings, titles } from './statistics'

describe.each(['en', 'zh'] as const)('in %s', (language) => {
  it.each([...COUNTS, ...MEASURES])('%s has words', (name) => {
    expect(labels(language)[name]).toMatch(/\S/)
    expect(titles(language)[name]).toMatch(/\S/)
    expect(meanings(language)[name]).toBeTypeOf('string')
  })

  it.each(COLUMNS.map(({ id }) => id))('the column %s of the table has words', (id) => {
    expect(i18next.getResource(language, tensorsTexts, `columns.${id}`)).toMatch(/\S/)
    expect(i18next.getResource(language, tensorsTexts, `columnHelp.${id}`)).toBeTypeOf('string')
  })
})

it('takes the label for a title that is not given', () => {
  expect(titles('en')).toMatchObject({ abs_mean: 'Mean absolute value', zero_count: 'Zero' })
})

it('gives the table a column for every measure, in declared order', () => {
  const measures = new Set<string>(MEASURES)
  expect(COLUMNS.map(({ id }) => id).filter((id) => measures.has(id))).toEqual(MEASURES)
})
