import { ActionIcon, CopyButton as Copying, Tooltip } from '@mantine/core'
import { IconCheck, IconCopy } from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import { partTexts } from './texts'

/** Copies a text; `label` says what. */
export function CopyButton({ text, label }: { text: string; label?: string }) {
  const { t } = useTranslation(partTexts)
  return (
    <Copying value={text} timeout={1500}>
      {({ copied, copy }) => (
        <Tooltip label={copied ? t('copied') : (label ?? t('copy'))}>
          <ActionIcon size="sm" onClick={copy} aria-label={label ?? t('copy')} data-testid="copy">
            {copied ? <IconCheck size={14} /> : <IconCopy size={14} />}
          </ActionIcon>
        </Tooltip>
      )}
    </Copying>
  )
}
