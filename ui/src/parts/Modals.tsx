import { ModalsProvider } from '@mantine/modals'
import type { ReactNode } from 'react'
import { useTranslation } from 'react-i18next'
import { partTexts } from './texts'

/** Provides confirmation dialogs; their close button has a label. */
export function Modals({ children }: { children: ReactNode }) {
  const { t } = useTranslation(partTexts)
  return (
    <ModalsProvider modalProps={{ closeButtonProps: { 'aria-label': t('close') } }}>
      {children}
    </ModalsProvider>
  )
}
