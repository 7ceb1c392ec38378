import i18next from 'i18next'
import { afterAll, describe, expect, it } from 'vitest'
import type { HitRecord } from '~/api/types'
import { adviceText } from './adviceText'
import { conditionTexts } from './conditionTexts'
import { conditionWords, type Watching } from './conditionWords'

const words = (language: string) => conditionWords(i18next.getFixedT(language, conditionTexts))

function watching(
  condition: string,
  parameters: Watching['parameters'],
  more: Partial<Watching> = {},
): Watching {
  return { condition, parameters, selection: 'all', edits: [], persistence: 1, ...more }
}

function hit(
  condition: string,
  parameters: HitRecord['parameters'],
  more: Partial<HitRecord> = {},
): HitRecord {
  return {
    watchpoint: 1,
    may_be_older: false,
    name: '',
    condition,
    abbreviation: '',
    severity: 'warning',
    hit: true,
    parameters,
    error_code: 0,
    errors: [],
    ...more,
  }
}

describe('a watchpoint in words', () => {
  it('names nodes, limits, and for how long', () => {
    const dead = watching(
      'dead_units',
      { dead_unit_percentage_gt: 50, zeros_of_unit: 100, unit_size: 8 },
      { selection: 'hidden_activation:relu,relu6', persistence: 5 },
    )
    expect(words('en').sentence(dead)).toBe(
      'Watches the outputs of the activation functions relu, relu6 in hidden layers; hits when the percentage of' +
        ' units that are zero is greater than 50 % in 5 steps in a row.',
    )
    expect(words('zh').sentence(dead)).toBe(
      '监测隐藏层中激活函数 relu, relu6 的输出；当输出全为零的神经元比例大于 50 %，且连续 5 步如此时命中。',
    )
  })
  it('joins several limits, and fills in the range', () => {
    const range = watching('tensor_range', {
      range_start_inclusive: -1,
      range_end_inclusive: 0,
      range_percentage_gt: 99.9,
      max_min_lt: 1e-5,
    })
    expect(words('en').sentence(range)).toBe(
      'Watches all tensors; hits when the percentage of elements from -1 to 0 is greater than 99.9 %, or the' +
        ' difference of the largest and the smallest element is less than 1e-5.',
    )
  })
  it('says what a condition without limits looks for', () => {
    expect(words('en').sentence(watching('tensor_overflow', {}, { selection: 'name:fc.*' }))).toBe(
      'Watches the nodes whose names match “fc.*”; hits when any element is NaN, +Inf or −Inf.',
    )
    expect(words('en').sentence(watching('mine', {}))).toBe(
      'Watches all tensors; hits when the condition Mine holds.',
    )
  })
  it('distinguishes an exact comparison from one with a tolerance', () => {
    const of = (rtol: number, atol: number) =>
      words('en').sentence(watching('weight_not_changed', { rtol, atol, equal_nan: false }))
    expect(of(0, 0)).toContain('hits when no element differs from its previous value.')
    expect(of(1e-5, 0)).toContain('by more than 0 + 1e-5 · |p|.')
  })
  it('names the only node that was chosen', () => {
    const edits = [{ add: true, path: 'Default/fc' }]
    expect(words('en').selection('none', edits)).toBe('only “Default/fc”')
    expect(words('en').selection('weights', edits)).toBe('the weights, changed by ticks in the tree')
  })
})

describe('a hit in numbers', () => {
  it('has the measured value beside the limit', () => {
    const [measure] = words('en').measures(
      hit('dead_units', [{ name: 'dead_unit_percentage_gt', preset: 50, actual: 96.875, hit: true }]),
    )
    expect(measure).toMatchObject({
      label: 'units that are zero',
      actual: '96.88 %',
      limit: '> 50 %',
      hit: true,
    })
  })
  it('without a limit says what the tensor contains', () => {
    const holding = (error_code: number) =>
      words('en').measures(hit('tensor_overflow', [], { error_code }))[0]?.label
    expect([1, 2, 3].map(holding)).toEqual(['contains NaN', 'contains Inf', 'contains NaN and Inf'])
  })
  it('that could not be made says why', () => {
    expect(words('zh').errors(hit('weight_not_changed', [], { hit: false, error_code: 4 | 8 }))).toEqual([
      '没有可供比较的上一步的值。',
      '张量大小超过内存上限。',
    ])
  })
})

describe('what the server says', () => {
  afterAll(async () => i18next.changeLanguage('en'))

  it('is shown in Chinese where it is translated', async () => {
    await i18next.changeLanguage('zh')
    expect(adviceText('Clip gradients by their global norm.')).toBe('按全局范数裁剪梯度。')
    expect(adviceText('it can be checked on Ascend; this run is on CPU')).toContain('只能在 Ascend 上检查')
    expect(adviceText('Of a condition of one’s own')).toBe('Of a condition of one’s own')
  })
})
