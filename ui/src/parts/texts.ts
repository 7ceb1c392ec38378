import { texts } from '~/i18n'

export const partTexts = texts(
  'parts',
  { failed: 'This could not be shown', again: 'Try again', copy: 'Copy', copied: 'Copied', close: 'Close' },
  { failed: '无法显示', again: '重试', copy: '复制', copied: '已复制', close: '关闭' },
)
