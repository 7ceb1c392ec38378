import { texts } from '~/i18n'

export const partTexts = texts(
  'parts',
  {
    failed: 'This could not be shown',
    again: 'Try again',
    copy: 'Copy',
    copied: 'Copied',
    close: 'Close',
    variant: '{{name}} (step {{steps}})',
    variants_one: '{{count}} variant',
    variants_other: '{{count}} variants',
    inStep: 'step {{steps}}',
    inSteps: 'steps {{steps}}',
    onlyIn: 'Not in all graphs of this training, only in {{graphs}}',
  },
  {
    failed: '无法显示',
    again: '重试',
    copy: '复制',
    copied: '已复制',
    close: '关闭',
    variant: '{{name}}（第 {{steps}} 步）',
    variants_one: '{{count}} 个变体',
    variants_other: '{{count}} 个变体',
    inStep: '第 {{steps}} 步',
    inSteps: '第 {{steps}} 步',
    onlyIn: '并非此训练的所有计算图都有，仅见于 {{graphs}}',
  },
)
